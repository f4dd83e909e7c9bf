"""The report of synthetic runs, number by number, and what it says when numbers are missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sylvie_trace.decision import ControllerConfig
from sylvie_trace.reader import read_run
from sylvie_trace.report import Report, build, json_
from sylvie_trace.report_types import to_builtins
from sylvie_trace.schema import Bits, Epoch, Footer, Message, Span

Make = Callable[..., Any]

PARTS = (
    "compute encode decode exposed_wait exposed_transfer gradient_allreduce coordinate other "
    "encode_hidden decode_hidden comm_hidden"
)
LAYER_KEYS = ["layer", "step", "direction", "rows", "main", "meta", "header", "wire_s", "exposed_s"]
#: Every key of report.json that a run's records can fill.
KEYS = {
    "run": "run_id dataset model system bits mask schedule world_size seed epochs complete",
    "epoch_time_s": "median mean std p95 n warmup_excluded",
    "breakdown_s": PARTS,
    "breakdown_max_rank_s": PARTS,
    "bytes_per_epoch": "main meta header gradient_allreduce fp32_equivalent by_layer by_pair",
    "bytes_total": "sent train evaluate input_halo gradient_allreduce control unused",
    "bits": "mean histogram node_mean node_histogram",
    "boundary": "pool_nodes share_of_nodes halo_rows level_counts thresholds importance",
    "modes": "sync async switches forced_sync forced_sync_epochs",
    "staleness": "0 1",
    "ldr_replay": "constant_clock_differs",
    "quality": "metric best_val test_at_best_val final_test best_epoch",
    "series": "L F ldr descent_rate epoch_time_s et base_bits mode",
    "wall_s": "total startup load partition extract train evaluate",
    "online_s": "encode decode coordinate",
    "overhead": "offline_share online_share encode_share decode_share coordinate_share",
    "peak_memory_mb": "max mean",
}
SCALARS = ("throughput_epochs_per_s", "attributed_fraction", "compression_ratio", "offline_cached")


def report_of(made: Any) -> Report:
    return build(read_run(made.path))


def checks(report: Report, status: str) -> set[str]:
    return {finding.check for finding in report.findings if finding.status == status}


def test_every_key_is_there_and_filled(synthetic: Make) -> None:
    document = json.loads(json_.dumps(report_of(synthetic())), parse_constant=pytest.fail)
    for section, names in KEYS.items():
        assert set(names.split()) <= document[section].keys(), section
        assert all(document[section][name] is not None for name in names.split()), section
    assert all(document[name] is not None for name in SCALARS)
    assert document["device_peak_mb"] is None
    assert set(document["findings"][0]) == {"check", "status", "evidence"}
    assert list(document["bytes_per_epoch"]["by_layer"][0]) == LAYER_KEYS


def test_the_numbers_of_a_known_run(synthetic: Make) -> None:
    report = report_of(synthetic(world_size=3, epochs=14, controller=ControllerConfig(schedule="sync", bits=2)))
    assert report.epoch_time_s is not None and report.throughput_epochs_per_s is not None
    assert report.epoch_time_s.median == pytest.approx(0.050) and report.epoch_time_s.n == 4
    assert report.throughput_epochs_per_s == pytest.approx(20)
    traffic = report.bytes_per_epoch
    assert traffic is not None and traffic.by_layer is not None and traffic.by_pair is not None
    # 3 ranks × 2 peers × 10 rows of 16 columns: 4 bytes a row at 2 bits, 8 of metadata, a header of 32.
    assert (traffic.main, traffic.meta, traffic.header) == (240, 480, 192)
    assert traffic.fp32_equivalent == 6 * 10 * 4 * 16
    assert report.compression_ratio == 3840 / 912
    assert traffic.gradient_allreduce == 3000
    (layer,) = traffic.by_layer
    assert (layer.layer, layer.step, layer.direction, layer.rows) == (2, 0, "forward", 60)
    assert layer.wire_s == layer.exposed_s == pytest.approx(0.007)
    assert [(p.src, p.dst, p.bytes) for p in traffic.by_pair] == [
        (src, dst, 152) for src in range(3) for dst in range(3) if src != dst
    ]
    assert report.bits is not None
    assert report.bits.histogram == {"1": 0, "2": 60 * 4, "4": 0, "8": 0} and report.bits.mean == 2
    assert report.bits.node_histogram == {"1": 0, "2": 20 * 4, "4": 0, "8": 0} and report.bits.node_mean == 2
    total = report.bytes_total
    assert total is not None
    assert total.train == 14 * 912 and total.gradient_allreduce == 14 * 3000
    assert total.sent == 14 * 912 + 14 * 3000 + 3 * (40 + 50 + 60)
    assert report.staleness == {"0": 14 * 6, "1": 0}
    assert (report.modes.sync, report.modes.async_, report.modes.switches) == (14, 0, 0)
    wall = report.wall_s
    assert (wall.startup, wall.load, wall.partition, wall.extract) == (0.05, 0.02, 0.1, 0.01)
    assert wall.train == pytest.approx(14 * 0.050) and wall.evaluate == pytest.approx(2 * 0.030)
    assert report.online_s is not None
    assert report.online_s.encode == pytest.approx(14 * 0.003)
    assert report.overhead.encode_share == pytest.approx(3 / 50)
    assert report.overhead.offline_share == pytest.approx(0.11 / (0.70 + 0.11))
    assert report.overhead.offline_share_without_partition == pytest.approx(0.01 / (0.70 + 0.01))
    assert report.peak_memory_mb is not None
    assert (report.peak_memory_mb.max, report.peak_memory_mb.mean) == (102, 101)
    assert report.quality.test_at_best_val == 0.79
    assert len(report.series.L) == 14 and report.series.ldr[0] is None and None not in report.series.ldr[1:]


def test_mixed_widths_and_levels(synthetic: Make) -> None:
    made = synthetic(
        epochs=3,
        controller=ControllerConfig(bits=4),
        change=lambda rank, r: msgspec.structs.replace(r, histogram={"4": 7, "8": 3}) if isinstance(r, Bits) else r,
    )
    info = json.loads(made.directory.run_json.read_text())
    info["boundary"]["level_counts"] = [10, 5, 3, 2]
    made.directory.run_json.write_text(json.dumps(info))
    bits = report_of(made).bits
    assert bits is not None
    assert bits.histogram == {"1": 0, "2": 0, "4": 28, "8": 12} and bits.mean == pytest.approx(5.2)
    assert bits.node_histogram == {"1": 0, "2": 0, "4": 20, "8": 20} and bits.node_mean == 6


def test_full_precision_has_the_width_32_alone(synthetic: Make) -> None:
    bits = report_of(synthetic(epochs=3, controller=ControllerConfig(bits=32, schedule="sync"))).bits
    assert bits is not None
    assert bits.histogram == {"32": 40} and bits.node_histogram == {"32": 40} and bits.mean == 32


def test_forced_sync_counts_epochs_that_ran(synthetic: Make) -> None:
    losses = [-float(t * t) for t in range(6)]  # every decision after δ = 1 is true, the last has no epoch
    made = synthetic(epochs=6, losses=losses, controller=ControllerConfig(delta=1, smoothing=0.0))
    modes = report_of(made).modes
    assert modes.forced_sync_epochs == [3, 4, 5] and modes.forced_sync == 3


def test_without_a_trace_the_reasons_are_given(synthetic: Make) -> None:
    report = report_of(synthetic(trace=False))
    assert report.breakdown_s is None and report.staleness is None and report.attributed_fraction is None
    assert report.bytes_per_epoch is not None and report.bytes_per_epoch.by_layer is None
    assert report.compression_ratio is not None  # from the epochs' own sums
    assert report.epoch_time_s is not None and report.epoch_time_s.mean == pytest.approx(0.050)
    absent = " ".join(checks(report, "absent"))
    for name in ("breakdown_s", "attributed_fraction", "by_layer", "by_pair", "staleness", "online_s"):
        assert name in absent


@pytest.mark.parametrize(("epochs", "measured"), [(1, 0), (2, 1), (10, 9), (11, 1)])
def test_short_runs(synthetic: Make, epochs: int, measured: int) -> None:
    report = report_of(synthetic(epochs=epochs))
    if measured == 0:
        assert report.epoch_time_s is None and "epoch_time_s" in " ".join(checks(report, "absent"))
        return
    assert report.epoch_time_s is not None and report.epoch_time_s.n == measured
    assert (report.epoch_time_s.std is None) == (measured == 1)


def test_a_killed_rank_leaves_a_report(synthetic: Make) -> None:
    """Torn tail on one rank, two epochs fewer than the other; common epochs are reported, books are noted."""
    made = synthetic(epochs=14)
    text = made.directory.trace_file(1).read_text()
    cut = text.index('"kind":"epoch","epoch":12,') + 30
    made.rewrite(1, text[:cut])
    report = report_of(made)
    assert report.run.epochs == 12 and not report.run.complete
    assert report.epoch_time_s is not None and report.epoch_time_s.n == 2
    assert report.bytes_total is None
    assert {"torn_tail", "incomplete_run"} <= checks(report, "warning")
    assert "bytes_total" in " ".join(checks(report, "absent"))


def test_a_killed_run_keeps_the_quality_that_it_recorded(synthetic: Make) -> None:
    scores = {4: (0.5, 0.41), 8: (0.7, 0.62), 11: (0.7, 0.99)}

    def evaluated(rank: int, record: Any) -> Any:
        if isinstance(record, Epoch) and record.epoch in scores:
            val, test = scores[record.epoch]
            return msgspec.structs.replace(record, metrics={"train": 0.9, "val": val, "test": test})
        return None if isinstance(record, Footer) else record

    made = synthetic(epochs=14, change=evaluated)
    made.directory.write_run_json(json.loads(made.directory.run_json.read_text()) | {"metric": "accuracy"})
    report = report_of(made)
    quality = report.quality
    assert (quality.metric, quality.best_val, quality.test_at_best_val, quality.best_epoch) == ("accuracy", 0.7, 0.62, 8)
    assert quality.final_test is None
    reasons = {finding.check: finding.evidence for finding in report.findings if finding.status == "absent"}
    assert "cut short" in reasons["quality.final_test"]


def test_what_a_missing_rank_sent_is_not_known(synthetic: Make) -> None:
    made = synthetic(epochs=14, world_size=3)
    whole = report_of(made)
    assert whole.bytes_per_epoch is not None and whole.compression_ratio is not None
    made.directory.trace_file(1).unlink()
    report = report_of(made)
    assert report.bytes_per_epoch is None and report.compression_ratio is None and report.bytes_total is None
    assert any("bytes_per_epoch" in check for check in checks(report, "absent"))
    assert report.epoch_time_s is not None and "missing_rank" in checks(report, "warning")


def test_modes_are_those_of_the_epochs_that_are_reported(synthetic: Make) -> None:
    made = synthetic(epochs=14)
    text = made.directory.trace_file(1).read_text()
    made.rewrite(1, text[: text.index('"kind":"epoch","epoch":9,') + 30])
    report = report_of(made)
    assert report.run.epochs == 9 and report.modes.sync + report.modes.async_ == 9


def test_an_empty_run_is_reported(synthetic: Make) -> None:
    made = synthetic(epochs=3)
    for rank in range(2):
        made.rewrite(rank, json.dumps(made.lines(rank)[0]) + "\n")
    report = report_of(made)
    assert report.run.epochs == 0 and report.epoch_time_s is None and report.series.L == []


def test_a_run_json_of_another_form_does_no_harm(synthetic: Make) -> None:
    made = synthetic(epochs=3)
    made.directory.run_json.write_text('{"schema": 1, "config": 3, "boundary": [1], "offline_cached": "yes"}')
    report = report_of(made)
    assert report.run.dataset is None and report.boundary.pool_nodes is None and report.offline_cached is None
    assert "boundary.pool_nodes" in " ".join(checks(report, "absent"))


def test_a_cached_stage_took_no_time_and_a_missing_one_is_unknown(synthetic: Make) -> None:
    def cached(rank: int, record: Any) -> Any:
        if isinstance(record, Span) and record.name == "partition":
            return msgspec.structs.replace(record, end_ns=record.start_ns)
        return None if isinstance(record, Span) and record.name == "load" else record

    report = report_of(synthetic(change=cached))
    assert report.wall_s.partition == 0 and report.wall_s.load is None
    assert "wall_s.load" in checks(report, "absent")


def test_the_slow_rank_is_named(synthetic: Make) -> None:
    report = report_of(synthetic(world_size=3, late_ms=(0, 0, 25)))
    (finding,) = [f for f in report.findings if f.check == "straggler"]
    assert "rank 2 was the last to send in 100% of the exchanges, 25.0 ms" in finding.evidence
    assert "straggler" not in checks(report_of(synthetic(world_size=3)), "warning")


def test_bytes_that_do_not_follow_the_bits_are_noticed(synthetic: Make) -> None:
    """Compression silently off: the decisions say 1 bit, the wire carries fp32."""

    def fat(rank: int, record: Any) -> Any:
        if isinstance(record, Message):
            return msgspec.structs.replace(record, main_bytes=640, recv_main_bytes=640)
        return msgspec.structs.replace(record, main_bytes=640) if isinstance(record, Epoch) else record

    assert "compression" in checks(report_of(synthetic(change=fat)), "warning")
    assert "compression" not in checks(report_of(synthetic()), "warning")


def test_trouble_is_found(synthetic: Make) -> None:
    made = synthetic(gap_ms=20, transfer_ms=60, controller=ControllerConfig(bits=1, schedule="sync"))
    info = json.loads(made.directory.run_json.read_text())
    info["boundary"]["share_of_nodes"] = 0.7
    info["offline_cached"] = True
    made.directory.run_json.write_text(json.dumps(info))
    lines = made.lines(1)
    lines[0]["offset_bound_ns"] = 20_000_000
    made.rewrite(1, "".join(json.dumps(line) + "\n" for line in lines))
    report = report_of(made)
    assert {"attributed_fraction", "boundary_share", "clock_bound"} <= checks(report, "warning")
    assert "offline_cached" in checks(report, "note")
    lines[0]["offset_bound_ns"] = 3_000_000
    made.rewrite(1, "".join(json.dumps(line) + "\n" for line in lines))
    assert "clock_bound" in checks(report_of(made), "note")
    broken = report_of(synthetic(change=lambda rank, r: msgspec.structs.replace(r, rows=3) if isinstance(r, Epoch) else r))
    assert "audit" in checks(broken, "warning")


def test_no_traffic_is_said(synthetic: Make) -> None:
    def silent(rank: int, record: Any) -> Any:
        if isinstance(record, Message):
            return None
        if isinstance(record, Epoch):
            zeros = dict.fromkeys(("rows", "main_bytes", "meta_bytes", "header_bytes"), 0)
            return msgspec.structs.replace(record, fp32_equivalent_bytes=0, **zeros)
        return msgspec.structs.replace(record, histogram={}) if isinstance(record, Bits) else record

    report = report_of(synthetic(change=silent))
    assert "no_traffic" in checks(report, "note")
    assert report.compression_ratio is None and report.bits is not None and report.bits.mean is None
    assert {"compression_ratio", "bits.mean"} <= checks(report, "absent")


def test_floats_read_back_exactly(synthetic: Make) -> None:
    report = report_of(synthetic(losses=[1 / 3 + t * 0.1 for t in range(12)]))
    assert json.loads(json_.dumps(report)) == json.loads(json.dumps(to_builtins(report)))
    assert json.loads(json_.dumps(report))["series"]["L"] == [1 / 3 + t * 0.1 for t in range(12)]
