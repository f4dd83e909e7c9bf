"""From a name or path to the files that hold the graph, without reading them.

A registered name is looked for as ``DATA_ROOT/NAME.npz`` first, then in the folders where the usual tools
put the raw files. A path may name an ``.npz`` or a folder in one of the known layouts.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sylvie.data import dgl_reddit, graphsaint, npz, ogb, planetoid
from sylvie.data.arrays import Report, log_notice
from sylvie.data.generator import generate, parse_settings
from sylvie.data.graph import GraphData
from sylvie.data.project import project_features

READER_VERSION = 1
"""Part of a source's identity: raised when a reader starts to give another graph for the same files."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One on-disk form: which files tell it apart, and what reads it."""

    title: str
    files: Callable[[str], tuple[str, ...]]  # dataset name -> the files expected inside the folder
    read: Callable[[Path, str, Report], GraphData]


SAINT = Layout(title="GraphSAINT", files=lambda _: graphsaint.FILES, read=graphsaint.read)
REDDIT = Layout(title="DGL", files=lambda _: dgl_reddit.FILES, read=dgl_reddit.read)
PLANETOID = Layout(title="Planetoid", files=planetoid.files, read=planetoid.read)
OGB = Layout(title="OGB", files=ogb.files, read=ogb.read)
PAPERS = Layout(title="OGB", files=lambda _: ogb.PAPERS_FILES, read=ogb.read_papers)


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A known dataset: folder patterns under the data root, and the layouts it comes in."""

    folders: tuple[str, ...]
    layouts: tuple[Layout, ...]


_REGISTERED = {
    "reddit": Registered(folders=("reddit", "Reddit", "reddit_*"), layouts=(REDDIT, SAINT)),
    "yelp": Registered(folders=("yelp", "Yelp", "yelp_*"), layouts=(SAINT,)),
    "amazon": Registered(folders=("amazon", "AmazonProducts", "amazon_products"), layouts=(SAINT,)),
    "flickr": Registered(folders=("flickr", "Flickr", "flickr_*"), layouts=(SAINT,)),
    "ogbn-products": Registered(folders=("ogbn_products", "ogbn-products", "products"), layouts=(OGB,)),
    "ogbn-arxiv": Registered(folders=("ogbn_arxiv", "ogbn-arxiv", "arxiv"), layouts=(OGB,)),
    "ogbn-papers100m": Registered(
        folders=("ogbn_papers100M", "ogbn-papers100M", "papers100M-bin", "papers100M"), layouts=(PAPERS,)
    ),
    "cora": Registered(
        folders=("cora", "Cora/raw", "cora/raw", "planetoid", "cora_v2*", "."), layouts=(PLANETOID,)
    ),
    "citeseer": Registered(
        folders=("citeseer", "CiteSeer/raw", "citeseer/raw", "planetoid", "citeseer*", "."),
        layouts=(PLANETOID,),
    ),
    "pubmed": Registered(
        folders=("pubmed", "PubMed/raw", "pubmed/raw", "planetoid", "pubmed*", "."), layouts=(PLANETOID,)
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """Where a graph comes from: ``read`` loads it, ``identity`` tells unread whether it is still the same."""

    name: str
    files: tuple[Path, ...]
    parameters: str
    read: Callable[[Report], GraphData]

    def load(self, report: Report = log_notice) -> GraphData:
        """Read, validate and (if asked for) project the graph; notices go to ``report``."""
        return self.read(report)

    def identity(self) -> str:
        """16 hex digits over name, parameters and each file's path, size and time of change."""
        digest = hashlib.sha256(f"{READER_VERSION}|{self.name}|{self.parameters}".encode())
        for path in self.files:
            stat = path.stat()
            digest.update(f"|{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode())
        return digest.hexdigest()[:16]

    def projected(self, columns: int, seed: int) -> Source:
        """The same source with features X replaced by X·R of ``columns`` columns, R drawn from ``seed``."""
        read = self.read
        return Source(
            name=self.name,
            files=self.files,
            parameters=f"{self.parameters}|projection={columns},seed={seed}",
            read=lambda report: project_features(read(report), columns, seed),
        )


def registered_names() -> tuple[str, ...]:
    """Names that ``--dataset`` knows, beside any path."""
    return (*_REGISTERED, "generator")


def default_data_root() -> Path:
    """``$SYLVIE_DATA``, else ``~/.cache/sylvie/data``."""
    given = os.environ.get("SYLVIE_DATA")
    return Path(given) if given else Path.home() / ".cache" / "sylvie" / "data"


def find_source(name_or_path: str, *, data_root: Path | None, seed: int) -> Source:
    """Find the files of a dataset; raises ValueError in one line for an unknown name or absent files.

    ``seed`` matters to the generator alone, and there a ``seed=`` in the name rules.
    """
    kind, _, settings_text = name_or_path.partition(":")
    if kind == "generator":
        settings = parse_settings(settings_text, seed)
        return Source(
            name="generator",
            files=(),
            parameters=str(settings),
            read=lambda report: generate(settings, report=report),
        )
    root = data_root if data_root is not None else default_data_root()
    registered = _REGISTERED.get(name_or_path.lower())
    if registered is not None:
        return _registered_source(name_or_path.lower(), registered, root)
    path = Path(name_or_path)
    if path.is_dir():
        return _folder_source(path)
    if path.suffix == ".npz" or path.is_file():
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
        return _npz_source(path, path.stem)
    if (root / f"{name_or_path}.npz").is_file():
        return _npz_source(root / f"{name_or_path}.npz", name_or_path)
    near = difflib.get_close_matches(name_or_path.lower(), registered_names(), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(registered_names())}"
    raise ValueError(f"dataset {name_or_path!r} is unknown and no such file exists; {hint}")


def _npz_source(path: Path, name: str) -> Source:
    return Source(
        name=name,
        files=(path,),
        parameters="npz",
        read=lambda report: npz.read(path, name=name, report=report),
    )


def _registered_source(name: str, registered: Registered, root: Path) -> Source:
    if (root / f"{name}.npz").is_file():
        return _npz_source(root / f"{name}.npz", name)
    for folder in _folders(root, registered.folders):
        for layout in registered.layouts:
            source = _layout_source(folder, name, layout)
            if source is not None:
                return source
    wanted = " or ".join(
        f"{root / registered.folders[0]}/{{{','.join(layout.files(name))}}}" for layout in registered.layouts
    )
    raise ValueError(f"dataset {name!r} is not under {root}; expected {root / (name + '.npz')} or {wanted}")


def _folders(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        if "*" in pattern:
            yield from sorted(path for path in root.glob(pattern) if path.is_dir())
        elif (root / pattern).is_dir():
            yield root / pattern


def _folder_source(folder: Path) -> Source:
    name = folder.name
    ind = sorted(path.name.split(".")[1] for path in folder.glob("ind.*.graph"))
    for layout, dataset in [
        (SAINT, name),
        (REDDIT, name),
        (PAPERS, name),
        (OGB, name),
        *((PLANETOID, n) for n in ind),
    ]:
        source = _layout_source(folder, dataset, layout)
        if source is not None:
            return source
    raise ValueError(
        f"{folder}: holds no known layout; give an .npz, or a GraphSAINT, OGB, Planetoid or DGL Reddit folder"
    )


def _layout_source(folder: Path, name: str, layout: Layout) -> Source | None:
    files = tuple(folder / file for file in layout.files(name))
    if not all(path.is_file() for path in files):
        return None
    return Source(
        name=name, files=files, parameters=layout.title, read=lambda report: layout.read(folder, name, report)
    )
