"""The studies' own arithmetic on known numbers, and their tools on small graphs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis import link_model
from analysis.batch import configuration
from analysis.cases import DEBTAGS, PUBMED, WORDNET, Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.plain_sage import train_plain
from analysis.settings import Outcome, Setting
from analysis.studies import all_studies, compression, execution, models
from analysis.tables import Column, build_table
from analysis.zero_halo import ZeroingTransport
from sylvie.build import seeded_model
from sylvie.config import parse_rate
from sylvie.coordinator import RuleClock
from sylvie.data import find_source
from sylvie.exchange.transport import SingleTransport
from sylvie.partition.assignment import read_assignment
from sylvie.partition.store import load_partition
from sylvie.start import prepare_offline


def _outcome(label: str, seed: int, quality: float, *, fixed: bool = False, **report: Any) -> Outcome:
    setting = Setting(label=label, seed=seed, options={"bits": 1} if fixed else {})
    return Outcome(setting=setting, run_dir=Path(), report={"quality": {"test_at_best_val": quality}, **report})


def _all_settings() -> list[Options]:
    settings: list[Options] = []
    for case in (PUBMED, WORDNET):
        settings += [case | dict(axes) | {"schedule": "sync"} for axes in compression.VARIANTS.values()]
        settings += [case | axes for axes in (execution.fixed_grid() | execution.adaptive_grid("3.5kbit")).values()]
    for name, shape in models.MODELS.items():
        settings += [
            case | shape | axes | {"model": name}
            for case in (PUBMED, WORDNET, DEBTAGS)
            for axes in (models.VANILLA, models.SYLVIE | {"ldr-link-rate": "1mbit"})
        ]
    return settings


def test_every_setting_of_the_studies_is_one_that_the_program_takes() -> None:
    assert {"compression", "execution", "models", "halo"} <= all_studies().keys()
    settings = _all_settings()
    assert len(settings) > 100
    for number, options in enumerate(settings):
        config, _ = configuration(Setting(label="x", seed=number, options=options).arguments(Path("/r")))
        assert config.seed == number
    with pytest.raises(ValueError, match="no effect"):
        configuration(Setting(label="x", seed=0, options={"mask": "off", "importance": "distinct"}).arguments(Path("/r")))


def test_a_mask_is_held_against_the_line_of_fixed_widths() -> None:
    outcomes = []
    for seed, shift in ((0, 0.0), (1, 0.02)):
        for label, size, quality in (("1 bit", 1, 0.80), ("2 bits", 2, 0.84), ("4 bits", 4, 0.86), ("8 bits", 8, 0.87)):
            traffic = {"main": 1e6 * size, "meta": 0.0}
            outcomes.append(_outcome(label, seed, quality + shift, bytes_per_epoch=traffic))
        masked = {"main": 1e6 * 2**0.5 - 100, "meta": 100.0}  # half way, in log2, between 1 and 2 bits
        outcomes.append(_outcome("mask", seed, 0.83 + shift + 0.01 * seed, bytes_per_epoch=masked))
        outcomes.append(_outcome("32 bits", seed, 0.88, bytes_per_epoch={"main": 32e6, "meta": 0.0}))
    line = compression.above_the_line(outcomes)
    assert line.keys() == {"mask"}
    assert line["mask"].mean == pytest.approx(1.5)  # 1 and 2 points above .82 and .84
    assert line["mask"].n == 2


def test_the_modelled_clock_of_the_rule_is_the_model_of_the_table() -> None:
    full = 123456.0
    clock = RuleClock("modelled", parse_rate(link_model.link_rate(full)))
    vanilla = clock.et_s(9.9, full, "sync")
    assert vanilla == pytest.approx(1 / (1 - link_model.SHARE), rel=1e-4)
    for mode, sent in (("sync", full / 8), ("async", full / 8), ("async", full)):
        model = link_model.epoch_share(mode, sent / full)
        assert clock.et_s(9.9, sent, mode) / vanilla == pytest.approx(model, rel=1e-4)


def test_dominance_needs_both_speed_and_quality() -> None:
    outcomes = []
    for seed in range(5):
        noise = 0.001 * seed
        for label, fixed, speed, quality in (
            ("adaptive", False, 8.0, 0.80),
            ("fast and better", True, 9.0, 0.81),
            ("fast and equal", True, 9.0, 0.80 + 0.002 * (-1) ** seed),
            ("slow and better", True, 4.0, 0.85),
            ("barely faster", True, 8.2, 0.85),
        ):
            modelled = {"speedup": speed + noise}
            outcomes.append(_outcome(label, seed, quality + 10 * noise, fixed=fixed, modelled=modelled))
    found = {each.fixed: each for each in execution.compare(outcomes)}
    assert found.keys() == {"fast and better", "fast and equal"}
    assert found["fast and better"].dominates
    assert found["fast and better"].better.mean == pytest.approx(1.0)
    assert not found["fast and equal"].dominates
    text = execution.dominance_text(list(found.values()))
    assert "1 pairs" in text
    assert "fast and better against adaptive" in text


def test_arriving_rows_are_zeroed_behind_their_headers() -> None:
    class Inner(SingleTransport):
        def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
            recv.copy_(send)

    sent = torch.arange(1, 11, dtype=torch.uint8)
    got = torch.empty_like(sent)
    ZeroingTransport(Inner(), kept=2).all_to_all(got, sent, [4, 0, 6], [4, 0, 6])
    assert got.tolist() == [1, 2, 0, 0, 5, 6, 0, 0, 0, 0]
    ZeroingTransport(Inner(), kept=0).all_to_all(got, sent, [10], [10])
    assert not got.any()


def test_a_run_with_a_zero_halo_loses_exactly_the_cut_edges(tmp_path: Path) -> None:
    """Its first loss is that of one process whose sums leave out the cut edges and whose degrees do not."""
    name = "generator:nodes=200,degree=6,features=8"
    options: Options = {
        "dataset": name,
        "partition": random_assignment(name, 2, tmp_path),
        "system": "vanilla",
        "layers": 2,
        "hidden": 8,
        "dropout": 0.0,
        "epochs": 1,
        "dtype": "float64",
        "cache-dir": str(tmp_path / "cache"),
    }
    session = "analysis.zero_halo:ZeroHaloSession"
    settings = [
        Setting(label="zeroed", seed=3, options=options, session=session),
        Setting(label="whole", seed=3, options=options),
        Setting(label="quantized", seed=3, options=options | {"system": "sylvie", "bits": 1}, session=session),
    ]
    zeroed, whole, quantized = Driver(tmp_path / "out", keep_going=True).run(settings)
    assert "needs --bits 32" in (quantized.error or "")
    config, _ = configuration(settings[0].arguments(Path("/r")))
    data = find_source(name, data_root=None, seed=0).load()
    owners = torch.from_numpy(read_assignment(Path(str(options["partition"])), data.num_nodes, 2))
    model: Any = seeded_model(config, load_partition(prepare_offline(config, 2).path, 0, 2))
    degree = torch.bincount(data.dst, minlength=data.num_nodes).clamp(min=1).double()[:, None]
    for outcome, kept in ((zeroed, owners[data.src] == owners[data.dst]), (whole, torch.ones_like(data.src, dtype=torch.bool))):
        assert isinstance(data.features, Tensor)
        h = data.features.double()
        for number, layer in enumerate(model.layers):
            h = F.relu(h) if number else h
            sums = torch.zeros_like(h).index_add_(0, data.dst[kept].long(), h[data.src[kept].long()])
            h = layer.own(h) + layer.near(sums / degree)
        loss = float(F.cross_entropy(h[data.train_mask], data.labels[data.train_mask]).detach())
        assert outcome.report is not None, outcome.error
        assert outcome.report["series"]["L"][0] == pytest.approx(loss, abs=1e-12)


def test_plain_dgl_learns_and_depends_on_the_seed_alone() -> None:
    shape = {"projection": 0, "hidden": 16, "layers": 2, "dropout": 0.2, "lr": 0.01, "epochs": 30, "eval_every": 5}
    name = "generator:nodes=600,degree=12,features=16"
    first, again, other = (train_plain(name, seed=seed, **shape) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert first == again
    assert first != other
    assert float(first["test_at_best_val"]) > 0.3  # of 8 classes


def test_a_random_assignment_is_the_seed_s(tmp_path: Path) -> None:
    name = "generator:nodes=1000"
    path = Path(random_assignment(name, 4, tmp_path))
    owners = read_assignment(path, 1000, 4)
    assert np.bincount(owners).min() > 200
    assert random_assignment(name, 4, tmp_path / "again") != str(path)
    assert (tmp_path / "again" / "assignments" / path.name).read_text() == path.read_text()
    assert Path(random_assignment(name, 4, tmp_path, seed=1)).read_text() != path.read_text()


def test_a_document_holds_its_tables_and_says_where_they_come_from(tmp_path: Path) -> None:
    outcomes = [_outcome("a", seed, 0.5 + 0.1 * seed) for seed in range(2)]
    table = build_table("Tests", outcomes, [Column(title="test", path="quality.test_at_best_val")])
    conditions = Conditions(command="python -m analysis x", load_before=0.1, cores=2)
    write_document(tmp_path, "x", title="X", conditions=conditions, parts=["Words.", table], data={"more": 1})
    text = (tmp_path / "x.md").read_text()
    assert text.startswith("# X\n\n`python -m analysis x`")
    assert "0.55 ± 0.07" in text
    assert "busy" not in text
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["more"] == 1
    assert content["made"]["cores"] == 2
    assert content["tables"][0]["rows"][0]["cells"]["test"]["values"] == {"0": 0.5, "1": 0.6}
    busy = Conditions(command="c", load_before=1.5, cores=2)
    write_document(tmp_path, "y", title="Y", conditions=busy, parts=[])
    assert "The machine was busy" in (tmp_path / "y.md").read_text()
