"""The codec bench says what it measured, in the form agreed on; nothing here judges how fast a loaded machine is."""

from __future__ import annotations

import json
import os

import pytest
import torch

from analysis import bench, bench_codec
from sylvie.codec import codec_for

FIELDS = {
    "impl",
    "bits",
    "dim",
    "encode_elements_per_s",
    "decode_elements_per_s",
    "copy_elements_per_s",
}


def test_json_has_every_codec_width_and_dim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_codec, "COPY_ELEMENTS", 2**14)
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    assert bench.main(["codec", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    impls = {"reference", "cpu"} | ({"cuda"} if torch.cuda.is_available() else set())
    assert {(r["impl"], r["bits"], r["dim"]) for r in rows} == {
        (impl, bits, dim) for impl in impls for bits in (1, 2, 4, 8) for dim in (128, 256)
    }
    for row in rows:
        assert set(row) == FIELDS
        assert all(row[field] > 0 for field in FIELDS - {"impl"})
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == (threads, cores)


def test_the_table_holds_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_codec, "COPY_ELEMENTS", 2**12)
    assert bench.main(["codec", "--impl", "cpu", "--metadata", "bf16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9 and all(line.startswith("cpu") for line in lines[1:])


def test_a_rate_is_elements_over_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that ticks once a look, copy, encode and decode take the same time: rates are their elements."""
    ticks = iter(range(10_000))
    monkeypatch.setattr("analysis.bench_codec.time.perf_counter", lambda: float(next(ticks)))
    rate = bench_codec.measure(codec_for("cpu"), bits=4, dim=64, elements=640, copy_elements=1024, repeats=3)
    assert (rate.encode_elements_per_s, rate.decode_elements_per_s, rate.copy_elements_per_s) == (
        640,
        640,
        1024,
    )


@pytest.mark.parametrize(
    "arguments",
    [["nope"], [], ["codec", "--impl", "fast"], ["codec", "--unknown"], ["codec", "--metadata", "fp16"]],
)
def test_bad_arguments_leave_with_2_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        bench.main(arguments)
    assert left.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_codec_without_its_device_is_refused() -> None:
    with pytest.raises(SystemExit) as left:
        bench.main(["codec", "--impl", "cuda"])
    assert left.value.code == 2
