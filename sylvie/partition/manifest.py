"""The small JSON file beside the partitions: what they were made from, and what they look like."""

from __future__ import annotations

from pathlib import Path

import msgspec

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
POOL_NAME = "pool.safetensors"


class RankStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Size of one rank's part; a node counts once in ``send_rows`` for each receiving peer."""

    inner: int
    halo: int
    edges: int
    send_rows: int
    train: int
    peers: int  # ranks that it receives rows from


class PartitionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How well a graph was cut."""

    ranks: tuple[RankStatistics, ...]
    balance: float  # most inner nodes of a rank / mean
    edge_balance: float  # most edges of a rank / mean
    pool_nodes: int  # nodes that some other rank needs
    boundary_share: float  # pool_nodes / all nodes
    volume: int  # halo rows over all ranks = rows on the wire of one exchange
    cut_edges: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a partition: two stores with equal origins hold the same parts."""

    graph: str  # fingerprint of the graph, features included
    parts: int
    method: str  # "metis-volume" or "assignment:" and the hash of the file
    seed: int | None  # None for a ready assignment


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``manifest.json``; ``files`` maps each file to its size and CRC-32."""

    format: int
    origin: Origin
    dataset: str
    fingerprint: str  # of graph, assignment and number of parts; the same as in every rank's file
    statistics: PartitionStatistics
    files: dict[str, tuple[int, int]]


def read_manifest(store: Path) -> Manifest:
    """The manifest of a store; raises ValueError in one line when missing, broken or of another format."""
    path = store / MANIFEST_NAME
    try:
        raw = path.read_bytes()
    except OSError:
        raise ValueError(
            f"{store}: holds no partition ({MANIFEST_NAME} is missing); run sylvie-partition first"
        ) from None
    try:
        version = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get("format")
        if version is not None and msgspec.json.decode(version) != FORMAT_VERSION:
            raise ValueError(
                f"{store}: has partition format {msgspec.json.decode(version)}, this program reads "
                f"{FORMAT_VERSION}; remove it and partition again"
            )
        return msgspec.json.decode(raw, type=Manifest)
    except msgspec.DecodeError as error:  # ValidationError included
        raise ValueError(f"{path}: is broken ({error}); remove {store} and partition again") from None


def check_origin(store: Path, found: Origin, wanted: Origin) -> None:
    """Raise ValueError in one line that names the first difference unless both origins are equal."""
    reasons = {
        "graph": f"from another graph ({found.graph}, this one is {wanted.graph})",
        "parts": f"for {found.parts} parts, not {wanted.parts}",
        "method": f"by {found.method}, not {wanted.method}",
        "seed": f"with seed {found.seed}, not {wanted.seed}",
    }
    for field, reason in reasons.items():
        if getattr(found, field) != getattr(wanted, field):
            raise ValueError(
                f"{store}: the partition there was made {reason}; choose another folder or remove it"
            )
