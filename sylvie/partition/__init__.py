"""The offline stage: cut a graph into one partition a rank, and keep it on disk."""

from __future__ import annotations

from sylvie.partition.manifest import Manifest, Origin, PartitionStatistics, RankStatistics, read_manifest
from sylvie.partition.partition import BoundaryPool, Partition
from sylvie.partition.prepare import PreparedPartition, default_cache_dir, prepare
from sylvie.partition.store import load_partition, load_pool

__all__ = [
    "BoundaryPool",
    "Manifest",
    "Origin",
    "Partition",
    "PartitionStatistics",
    "PreparedPartition",
    "RankStatistics",
    "default_cache_dir",
    "load_partition",
    "load_pool",
    "prepare",
    "read_manifest",
]
