"""The offline stage: a graph becomes a store of partitions, or a store made earlier is found again.

The cache holds ``<key>/`` for each store, key = hash of its Origin, and ``sources/<identity>.json``, which
remembers the fingerprint of a graph by its files' names, sizes and times of change: a hit reads no graph.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sylvie.data.fingerprint import fingerprint
from sylvie.data.graph import GraphData
from sylvie.partition.assignment import read_assignment
from sylvie.partition.build import boundary_pool, find_crossings, iter_partitions, partition_fingerprint
from sylvie.partition.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    Manifest,
    Origin,
    check_origin,
    read_manifest,
)
from sylvie.partition.metis import check_parts, metis_assignment
from sylvie.partition.statistics import partition_statistics, rank_statistics
from sylvie.partition.store import check_sizes, write_manifest, write_partition, write_pool, writing_store

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PreparedPartition:
    """Where the partitions are; ``seconds`` has "load" and "partition", both 0.0 when nothing was done."""

    path: Path
    manifest: Manifest
    cached: bool
    seconds: dict[str, float] = field(default_factory=dict)


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/sylvie/partitions``, else ``~/.cache/sylvie/partitions``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sylvie" / "partitions"


def prepare(
    graph_loader: Callable[[], GraphData],
    *,
    parts: int,
    seed: int,
    assignment_file: Path | None = None,
    cache_dir: Path | None = None,
    identity: str | None = None,
    out: Path | None = None,
    report: Report = lambda _: None,
) -> PreparedPartition:
    """Partition a graph into ``parts``, or find the same partition made before.

    ``identity`` names the graph without reading it (``Source.identity()``); with it a cached partition
    costs no load. ``out`` is an exact folder instead of the cache: an equal partition there is used again,
    another one is refused. Raises ValueError in one line on bad input or a damaged store; nothing is left
    half-written.
    """
    if parts < 1:
        raise ValueError(f"{parts} parts are impossible; at least 1 is needed")
    if seed < 0:
        raise ValueError(f"seed {seed} is negative; take 0 or more")
    cache = cache_dir if cache_dir is not None else default_cache_dir()
    method = "metis-volume" if assignment_file is None else f"assignment:{_file_hash(assignment_file)}"

    def origin_of(graph_fingerprint: str) -> Origin:
        return Origin(
            graph=graph_fingerprint,
            parts=parts,
            method=method,
            seed=seed if assignment_file is None else None,
        )

    remembered = _recall(cache, identity)
    if remembered is not None:
        origin = origin_of(remembered)
        found = _find(out or cache / _key(origin), origin, exact=out is not None)
        if found is not None:
            report(f"partition: {parts} parts found in {found.path}")
            return found
    report("load: reading the graph")
    started = time.perf_counter()
    graph = graph_loader()
    check_parts(graph, parts)
    graph_fingerprint = fingerprint(graph)
    loaded = time.perf_counter()
    report(
        f"load: {graph.name}, {graph.num_nodes} nodes, {graph.src.shape[0]} edges in {loaded - started:.1f} s"
    )
    _remember(cache, identity, graph_fingerprint)
    origin = origin_of(graph_fingerprint)
    store = out or cache / _key(origin)
    found = _find(store, origin, exact=out is not None)
    if found is None:
        report(f"partition: cutting {graph.name} into {parts} parts by {method}")
        _build(graph, origin, store, assignment_file, report)
        built = _find(store, origin, exact=out is not None)
        assert built is not None
        manifest = built.manifest
        report(f"partition: {parts} parts in {time.perf_counter() - loaded:.1f} s, kept in {store}")
    else:
        manifest = found.manifest
        report(f"partition: {parts} parts found in {store}")
    seconds = {"load": loaded - started, "partition": time.perf_counter() - loaded if found is None else 0.0}
    return PreparedPartition(path=store, manifest=manifest, cached=found is not None, seconds=seconds)


def _build(
    graph: GraphData, origin: Origin, store: Path, assignment_file: Path | None, report: Report
) -> None:
    parts = origin.parts
    if assignment_file is not None:
        assignment = read_assignment(assignment_file, graph.num_nodes, parts)
    else:
        assert origin.seed is not None
        assignment = metis_assignment(graph, parts, origin.seed, report)
    crossings = find_crossings(graph, assignment)
    ranks = []
    with writing_store(store) as folder:
        for part in iter_partitions(graph, assignment, parts, crossings, origin.graph):
            write_partition(folder, part)
            ranks.append(rank_statistics(part))
        write_pool(folder, boundary_pool(graph, crossings))
        manifest = Manifest(
            format=FORMAT_VERSION,
            origin=origin,
            dataset=graph.name,
            fingerprint=partition_fingerprint(origin.graph, assignment, parts),
            statistics=partition_statistics(graph, assignment, crossings, ranks),
            files={},
        )
        write_manifest(folder, manifest)


def _find(store: Path, origin: Origin, *, exact: bool) -> PreparedPartition | None:
    """The store if it is there; refuses a damaged one, and in an exact folder any other partition."""
    if not store.exists():
        return None
    if exact and not (store / MANIFEST_NAME).is_file():
        if store.is_dir() and not any(store.iterdir()):
            return None
        raise ValueError(f"{store}: exists and holds no partition; choose another folder")
    manifest = read_manifest(store)
    check_origin(store, manifest.origin, origin)
    check_sizes(store, manifest)
    return PreparedPartition(
        path=store, manifest=manifest, cached=True, seconds={"load": 0.0, "partition": 0.0}
    )


def _key(origin: Origin) -> str:
    text = f"{FORMAT_VERSION}|{origin.graph}|{origin.parts}|{origin.method}|{origin.seed}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ValueError(f"{path}: cannot be read as an assignment ({error.strerror})") from None


def _recall(cache: Path, identity: str | None) -> str | None:
    """The fingerprint of the graph with this identity, if it was loaded before."""
    if identity is None:
        return None
    try:
        return msgspec.json.decode(
            (cache / "sources" / f"{identity}.json").read_bytes(), type=dict[str, str]
        )["graph"]
    except (OSError, msgspec.DecodeError, KeyError):
        return None  # a note only: without it the graph is read again


def _remember(cache: Path, identity: str | None, graph_fingerprint: str) -> None:
    if identity is None:
        return
    notes = cache / "sources"
    try:
        notes.mkdir(parents=True, exist_ok=True)
        temporary = notes / f".{identity}-{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode({"graph": graph_fingerprint}))
        temporary.replace(notes / f"{identity}.json")
    except OSError as error:
        raise ValueError(
            f"{cache}: cannot be written ({error.strerror}); choose another cache folder"
        ) from error
