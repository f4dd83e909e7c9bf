"""The store on disk and its cache: read back exactly, reused only when equal, refused when damaged."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import msgspec
import pytest
import torch

from sylvie.data import GraphData, SparseRows, find_source, fingerprint
from sylvie.partition import load_partition, load_pool, prepare, read_manifest
from sylvie.partition.build import find_crossings, iter_partitions
from sylvie.partition.metis import metis_assignment
from sylvie.partition.store import rank_file, writing_store
from tests.sylvie.graphs import graph_of, write_npz

EDGES = [(node, (node * 7 + 3) % 40) for node in range(40)] + [(node, (node + 1) % 40) for node in range(40)]


def make(sparse: bool = False, seed: int = 0) -> GraphData:
    return graph_of(40, EDGES, sparse=sparse, seed=seed)


def must_not_load() -> GraphData:
    raise AssertionError("a cache hit must not load the graph")


@pytest.mark.parametrize("sparse", [False, True])
def test_partitions_are_read_back_exactly(tmp_path: Path, sparse: bool) -> None:
    graph = make(sparse)
    prepared = prepare(lambda: graph, parts=3, seed=1, cache_dir=tmp_path)
    assignment = metis_assignment(graph, 3, 1, lambda _: None)
    crossings = find_crossings(graph, assignment)
    for built in iter_partitions(graph, assignment, 3, crossings, fingerprint(graph)):
        loaded = load_partition(prepared.path, built.rank, 3)
        for field in dataclasses.fields(built):
            before, after = getattr(built, field.name), getattr(loaded, field.name)
            if isinstance(before, SparseRows):
                assert isinstance(after, SparseRows)
                assert before.shape == after.shape
                for part in ("indptr", "indices", "values"):
                    assert torch.equal(getattr(before, part), getattr(after, part))
            elif isinstance(before, torch.Tensor):
                assert before.dtype == after.dtype
                assert torch.equal(before, after), field.name
            else:
                assert before == after, field.name
        assert loaded.fingerprint == prepared.manifest.fingerprint
    pool = load_pool(prepared.path)
    assert pool.ids.tolist() == sorted(set(crossings.node.tolist()))


def test_statistics_of_a_known_cut(tmp_path: Path) -> None:
    graph = graph_of(6, [(0, 1), (1, 2), (2, 1), (0, 2), (4, 3)])
    file = tmp_path / "parts"
    file.write_text("0\n0\n1\n1\n1\n0\n")
    stats = prepare(
        lambda: graph, parts=2, seed=0, assignment_file=file, cache_dir=tmp_path
    ).manifest.statistics
    first, second = stats.ranks
    assert (first.inner, first.halo, first.edges, first.send_rows, first.peers) == (3, 1, 2, 2, 1)
    assert (second.inner, second.halo, second.edges, second.send_rows, second.peers) == (3, 2, 3, 1, 1)
    assert first.train + second.train == int(graph.train_mask.sum())
    assert (stats.balance, stats.edge_balance) == (1.0, 1.2)
    assert (stats.pool_nodes, stats.boundary_share, stats.volume, stats.cut_edges) == (3, 0.5, 3, 3)


def test_equal_partition_is_found_again(tmp_path: Path) -> None:
    said: list[str] = []
    first = prepare(make, parts=2, seed=1, cache_dir=tmp_path, report=said.append)
    second = prepare(make, parts=2, seed=1, cache_dir=tmp_path, report=said.append)
    assert (first.cached, second.cached) == (False, True)
    assert first.path == second.path
    assert first.manifest == second.manifest
    assert first.seconds["partition"] > 0
    assert second.seconds["partition"] == 0
    assert "found in" in said[-1]
    file = tmp_path / "parts"
    file.write_text("".join(f"{node % 2}\n" for node in range(40)))
    others = [
        prepare(make, parts=3, seed=1, cache_dir=tmp_path),
        prepare(make, parts=2, seed=2, cache_dir=tmp_path),
        prepare(lambda: make(seed=1), parts=2, seed=1, cache_dir=tmp_path),
        prepare(make, parts=2, seed=1, cache_dir=tmp_path, assignment_file=file),
    ]
    assert not any(other.cached for other in others)
    assert len({other.path for other in [first, *others]}) == 5
    # A ready assignment leaves METIS's seed without effect, so it is not part of the key.
    assert prepare(make, parts=2, seed=5, cache_dir=tmp_path, assignment_file=file).cached


def test_known_identity_needs_no_load(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    cache = tmp_path / "cache"

    def identity() -> str:
        return find_source(str(path), data_root=None, seed=0).identity()

    source = find_source(str(path), data_root=None, seed=0)
    prepare(source.load, parts=2, seed=0, cache_dir=cache, identity=identity())
    hit = prepare(must_not_load, parts=2, seed=0, cache_dir=cache, identity=identity())
    assert hit.cached
    assert hit.seconds == {"load": 0.0, "partition": 0.0}
    write_npz(path, x=torch.ones(12, 2).numpy())  # the file changes: the note no longer holds
    changed = prepare(source.load, parts=2, seed=0, cache_dir=cache, identity=identity())
    assert not changed.cached
    assert changed.path != hit.path


def test_exact_folder_is_reused_or_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not prepare(make, parts=2, seed=0, cache_dir=tmp_path / "c", out=out).cached
    assert prepare(make, parts=2, seed=0, cache_dir=tmp_path / "c", out=out).cached
    for changes, words in (
        ({"parts": 3}, "made for 2 parts, not 3"),
        ({"seed": 4}, "made with seed 0, not 4"),
    ):
        with pytest.raises(ValueError, match=words):
            prepare(make, **{"parts": 2, "seed": 0, **changes}, cache_dir=tmp_path / "c", out=out)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="made from another graph"):
        prepare(lambda: make(seed=3), parts=2, seed=0, cache_dir=tmp_path / "c", out=out)
    other = tmp_path / "other"
    other.mkdir()
    assert not prepare(make, parts=2, seed=0, cache_dir=tmp_path / "c", out=other).cached
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    with pytest.raises(ValueError, match="exists and holds no partition"):
        prepare(make, parts=2, seed=0, cache_dir=tmp_path / "c", out=tmp_path / "full")


def test_wrong_rank_or_world_size(tmp_path: Path) -> None:
    store = prepare(make, parts=2, seed=0, cache_dir=tmp_path).path
    with pytest.raises(ValueError, match="made for 2 parts, but 4 ranks are running"):
        load_partition(store, 0, 4)
    with pytest.raises(ValueError, match="has no rank 2"):
        load_partition(store, 2, 2)
    with pytest.raises(ValueError, match="holds no partition"):
        load_partition(tmp_path / "nowhere", 0, 2)


def test_a_rank_needs_only_its_own_file(tmp_path: Path) -> None:
    store = prepare(make, parts=3, seed=0, cache_dir=tmp_path).path
    (store / rank_file(0)).unlink()
    assert load_partition(store, 1, 3).rank == 1
    with pytest.raises(ValueError, match=r"rank-00000\.safetensors: is missing"):
        load_partition(store, 0, 3)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[:-5])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "flipped":
        content[-3] ^= 0x10
        path.write_bytes(content)
    elif how == "header":
        content[3] ^= 0xFF
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "empty", "flipped", "header"])
@pytest.mark.parametrize("name", ["rank-00001.safetensors", "pool.safetensors"])
def test_damaged_file_is_one_line(tmp_path: Path, name: str, how: str) -> None:
    store = prepare(make, parts=2, seed=0, cache_dir=tmp_path).path
    damage(store / name, how)
    with pytest.raises(ValueError) as caught:
        load_pool(store) if name.startswith("pool") else load_partition(store, 1, 2)
    assert name in str(caught.value)
    assert "partition again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_cache_entry_is_refused_when_found(tmp_path: Path) -> None:
    store = prepare(make, parts=2, seed=0, cache_dir=tmp_path).path
    damage(store / rank_file(1), "truncated")
    with pytest.raises(ValueError, match="partition again"):
        prepare(make, parts=2, seed=0, cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is broken"),
        ('{"format": 1', "is broken"),
        ("[]", "is broken"),
        ('{"format": 1}', "is broken"),
        ('{"format": 99, "new": true}', "has partition format 99"),
    ],
)
def test_broken_manifest_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    store = prepare(make, parts=2, seed=0, cache_dir=tmp_path).path
    (store / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        load_partition(store, 0, 2)
    assert "\n" not in str(caught.value)


def test_file_of_another_partition_is_refused(tmp_path: Path) -> None:
    """Even with a manifest that was patched to its checksum."""
    store = prepare(make, parts=2, seed=0, cache_dir=tmp_path).path
    other = prepare(lambda: make(seed=1), parts=2, seed=0, cache_dir=tmp_path).path
    shutil.copy(other / rank_file(0), store / rank_file(0))
    manifest = read_manifest(store)
    files = {**manifest.files, rank_file(0): read_manifest(other).files[rank_file(0)]}
    patched = msgspec.structs.replace(manifest, files=files)
    (store / "manifest.json").write_bytes(msgspec.json.encode(patched))
    with pytest.raises(ValueError, match="belongs to another partition"):
        load_partition(store, 0, 2)


def test_nothing_is_left_half_written(tmp_path: Path) -> None:
    def fail() -> None:
        with writing_store(tmp_path / "cache" / "store") as folder:
            (folder / "half").write_text("x")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_store_that_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    theirs = tmp_path / "store"
    with writing_store(theirs) as folder:
        (folder / "ours").write_text("x")
        theirs.mkdir()
        (theirs / "manifest.json").write_text("theirs")
    assert [path.name for path in theirs.iterdir()] == ["manifest.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot be written"):
        prepare(make, parts=2, seed=0, cache_dir=tmp_path / "file")


@pytest.mark.parametrize(
    ("parts", "seed", "words"), [(0, 0, "0 parts"), (41, 0, "41 parts"), (2, -1, "seed -1")]
)
def test_impossible_requests(tmp_path: Path, parts: int, seed: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prepare(make, parts=parts, seed=seed, cache_dir=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name != "sources"]
