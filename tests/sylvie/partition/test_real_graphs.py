"""Real graphs, where they are at hand: the boundary that METIS leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from sylvie.data import find_source
from sylvie.extractor import extract
from sylvie.partition import load_partition, load_pool, prepare
from tests.sylvie.graphs import real_graph_root


@pytest.mark.parametrize(
    ("name", "parts", "volume"),
    [("debian13_section", 2, 30_250), ("debian13_section", 8, 89_651), ("wordnet30_lexname", 4, 13_813)],
)
def test_halo_rows_of_metis_by_volume(tmp_path: Path, name: str, parts: int, volume: int) -> None:
    """METIS may change with its version, but a boundary some percent larger means another objective."""
    source = find_source(name, data_root=real_graph_root(), seed=1)
    prepared = prepare(source.load, parts=parts, seed=1, cache_dir=tmp_path)
    stats = prepared.manifest.statistics
    assert stats.volume == pytest.approx(volume, rel=0.03)
    assert stats.balance < 1.05
    halo = [load_partition(prepared.path, rank, parts).num_halo for rank in range(parts)]
    assert halo == [rank.halo for rank in stats.ranks]


def test_named_thresholds_on_a_real_boundary(tmp_path: Path) -> None:
    source = find_source("debian13_section", data_root=real_graph_root(), seed=1)
    pool = load_pool(prepare(source.load, parts=4, seed=1, cache_dir=tmp_path).path)
    top = extract(pool, thresholds="top10")
    assert sum(top.counts) == pool.ids.shape[0]
    mean_bits = sum(count * 2**level for level, count in enumerate(top.counts)) / sum(top.counts)
    assert 1.1 < mean_bits < 1.3  # the tenth of the nodes that it favours
    plain = extract(pool, thresholds="quartile").counts
    assert 3.2 < sum(count * 2**level for level, count in enumerate(plain)) / sum(plain) < 4.0
