"""`python -m analysis.device_check`: what no test on the host can show, on a machine with one CUDA device and no network.

    python -m analysis.device_check --prepare DIR    where METIS is: cut the small graphs that the check trains on (about 40 MB)
    python -m analysis.device_check DIR [--json]     on the device machine; minutes. Exit code 1 where a check fails

It checks that the CUDA codec gives the reference codec's bytes, and at what share of a device copy's rate; that rows which a
rank sends itself over NCCL are those of the due epoch, whatever is late; that two ranks which share the device (gloo, pinned
copies) consume rows of the age their mode promises; how long an epoch takes; and that an exact run on the device follows the
one on the host and leaves a valid trace. Without a CUDA device it says so in one line and ends well.

Needed there: Python 3.11 or later, torch with triton, numba, numpy, scipy, safetensors, rich, msgspec. Not needed: DGL
(torch's sparse product takes its place), pymetis, nvtx, wandb, plotly. What is missing there and cannot be fetched travels as
wheels, unpacked into a folder that PYTHONPATH names: `pip download --no-deps --only-binary=:all: --python-version 3.12 -d
WHEELS msgspec` here, `pip install --no-index --no-deps --target SITE WHEELS/*.whl` there. Wheels and DIR are not kept in the
repository.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from analysis.device_ranks import EPOCHS, SMALL, LateTransport, late_config, loopback, loopback_plan, modes_and_bases
from sylvie.codec import Codec, NoiseKey, body_layout, codec_for
from sylvie.codec.layout import WIDTHS
from sylvie.config import resolve
from sylvie.exchange.carrier import Carrier, DeviceCarrier
from sylvie.exchange.exchange import HaloExchange, Round
from sylvie.exchange.ledger import Ledger
from sylvie.exchange.streams import CudaStreams, Streams
from sylvie.exchange.transport import DefaultGroupTransport
from sylvie.exchange.worker import Issuer, StreamWorker
from sylvie.launch import launch_local
from sylvie.recipes import find_recipe
from sylvie.start import prepare_offline
from sylvie_trace.nvtx import Ranges
from sylvie_trace.recorder import Recorder
from sylvie_trace.schema import SCHEMA_VERSION, SYNC, TRAIN, AnyRecord, Epoch, Header, Message, Reuse

LARGE = "generator:nodes=40000,degree=20,features=64"
#: fp32 on both sides, other summation orders; dropout off.
_SAME_LOSS = 2e-5
_KEY = NoiseKey(seed=0, epoch=1, layer=1, step=0, direction=0, sender=0)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; ``passed`` None where nothing was expected of a number."""

    check: str
    result: str
    passed: bool | None = None


def prepare(folder: Path) -> None:
    """Cut the graphs, where METIS is."""
    for dataset, parts in ((SMALL, 2), (LARGE, 1), (LARGE, 2)):
        config = resolve(find_recipe("quickstart").config(), {"dataset": dataset, "parts": parts, "cache_dir": folder})
        print(f"{dataset}, {parts} parts: {prepare_offline(config, parts).path}")


def codec_rows(codec: Codec, device: torch.device, elements: int) -> list[Row]:
    """Equal bytes on random and on awkward rows; rates against a copy of the same size, bytes read plus written."""
    rows = []
    copy = _copy_rate(device, elements)
    for metadata in ("fp32", "bf16"):
        equal = all(_same_bytes(codec, device, dim, metadata) for dim in (1, 3, 64, 127, 256))
        rows.append(Row(check=f"codec bytes, {metadata}", result="equal" if equal else "DIFFERENT", passed=equal))
    for dim in (128, 256):
        for bits in WIDTHS:
            encode, decode = _codec_rates(codec, device, elements, dim, bits)
            share = encode / copy
            rows.append(
                Row(
                    check=f"codec {dim} x {bits} bit",
                    result=f"encode {encode / 1e9:.0f} GB/s ({share:.2f} of a copy), decode {decode / 1e9:.0f} GB/s "
                    f"({decode / copy:.2f})",
                    passed=share >= 0.7,
                )
            )
    return rows


def _same_bytes(codec: Codec, device: torch.device, dim: int, metadata: str) -> bool:
    draw = torch.Generator().manual_seed(dim)
    source = torch.randn(3000, dim, generator=draw)
    source[0], source[1] = 2.5, -0.0
    source[2] *= 1e-42
    source[3] *= 1e37
    bits = torch.tensor(WIDTHS, dtype=torch.uint8)[torch.randint(0, 4, (2000,), generator=draw)]
    layout = body_layout(torch.randint(0, 2**40, (2000,), generator=draw), bits, dim, metadata)
    index = torch.randperm(3000, generator=draw)[:2000]
    index[:4] = torch.arange(4)
    bodies, restored = [], []
    for each, place in ((codec_for("cpu", "reference"), torch.device("cpu")), (codec, device)):
        body = torch.empty(layout.nbytes + 3, dtype=torch.uint8, device=place)[3:]
        out = torch.full((2000, dim), float("nan"), device=place)
        each.encode(source.to(place), index.to(place), layout, _KEY, body)
        each.decode(body, layout, out)
        each.check()
        bodies.append(body.cpu())
        restored.append(out.cpu().view(torch.int32))
    return torch.equal(*bodies) and torch.equal(*restored)


def _codec_rates(codec: Codec, device: torch.device, elements: int, dim: int, bits: int) -> tuple[float, float]:
    rows = elements // dim
    source, out = torch.randn(rows, dim, device=device), torch.empty(rows, dim, device=device)
    index = torch.arange(rows, device=device)
    layout = body_layout(torch.arange(rows), torch.full((rows,), bits, dtype=torch.uint8), dim)
    body = torch.empty(layout.nbytes, dtype=torch.uint8, device=device)
    moved = 4 * rows * dim + layout.nbytes
    encode = _seconds(lambda: codec.encode(source, index, layout, _KEY, body), device)
    decode = _seconds(lambda: codec.decode(body, layout, out), device)
    codec.check()
    return moved / encode, moved / decode


def _copy_rate(device: torch.device, elements: int) -> float:
    original, copied = torch.randn(elements, device=device), torch.empty(elements, device=device)
    return 8 * elements / _seconds(lambda: copied.copy_(original), device)


def _seconds(step: Callable[[], object], device: torch.device, repeats: int = 15) -> float:
    """Median seconds of a step, by events on a device, after three untimed ones."""
    times = []
    for turn in range(repeats + 3):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            step()
            end.record()
            end.synchronize()
            taken = float(start.elapsed_time(end)) / 1e3
        else:
            began = time.perf_counter()
            step()
            taken = time.perf_counter() - began
        if turn >= 3:
            times.append(taken)
    return statistics.median(times)


def loopback_exchange(streams: Streams, worker: Issuer, carrier: Carrier, trace: Path) -> HaloExchange:
    """The exchange of a rank with itself."""
    header = Header(
        schema=SCHEMA_VERSION,
        run_id="loopback",
        rank=0,
        world_size=1,
        pid=os.getpid(),
        host="here",
        wall_ns=time.time_ns(),
        clock_ns=time.monotonic_ns(),
        offset_ns=0,
        offset_bound_ns=0,
        trace=True,
    )
    return HaloExchange(
        plan=loopback_plan(5000).on(streams.device),
        carrier=carrier,
        worker=worker,
        codec=codec_for(streams.device.type),
        rounds=(Round(send_peers=(0,), recv_peers=(0,)),),
        metadata="fp32",
        seed=0,
        streams=streams,
        ledger=Ledger(Recorder(trace, header)),
        ranges=Ranges(False),
    )


def _nccl_row(device: torch.device, folder: Path) -> Row:
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{folder / 'rendezvous'}", rank=0, world_size=1)
    try:
        streams = CudaStreams(device, time.monotonic_ns, timed=True)
        transport = LateTransport(DefaultGroupTransport(), seed=1)
        carrier = DeviceCarrier(transport, streams, time.monotonic_ns)
        exchange = loopback_exchange(streams, StreamWorker(streams), carrier, folder / "loopback.jsonl")
        wrong = loopback(exchange, device, 300, seed=1)
    finally:
        dist.destroy_process_group()
    return Row(check="rows over NCCL, one rank with itself", result=f"300 epochs, {wrong} wrong rows", passed=wrong == 0)


def ages_row(cache: Path, folder: Path, device: str) -> Row:
    """Two ranks that share the device, everything late by chance."""
    run_dir = folder / "ages"
    code = launch_local(2, [str(cache), str(run_dir), device], run_dir, module="analysis.device_ranks")
    if code:
        return Row(check="ages, two ranks on one device", result=f"the run ended with exit code {code}", passed=False)
    modes, _ = modes_and_bases(EPOCHS, late_config(cache, run_dir, device).seed)
    consumed = wrong = 0
    for file in run_dir.glob("trace/rank-*.jsonl"):
        for line in file.read_bytes().splitlines():
            record = msgspec.json.decode(line, type=AnyRecord)
            if isinstance(record, Reuse):
                epoch: int | None = record.epoch
            elif isinstance(record, Message) and record.purpose == TRAIN:
                epoch = record.consumed_epoch
            else:
                continue
            if epoch is not None:
                consumed += 1
                wrong += record.age != (0 if modes[epoch] == SYNC else 1)
    result = f"{consumed} messages, {wrong} of a wrong age"
    return Row(check="ages, two ranks on one device", result=result, passed=consumed > 0 and wrong == 0)


def losses_and_times(cache: Path, run_dir: Path, options: Sequence[str]) -> tuple[list[float], list[float]]:
    """Train by the command line; every epoch's loss and seconds. RuntimeError with its last line where it fails."""
    command = [sys.executable, "-m", "sylvie", "quickstart", "--cache-dir", str(cache), "--run-dir", str(run_dir), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    lines = (run_dir / "trace" / "rank-00000.jsonl").read_bytes().splitlines()
    epochs = [r for r in (msgspec.json.decode(line, type=AnyRecord) for line in lines) if isinstance(r, Epoch)]
    return [e.loss for e in epochs if e.loss is not None], [e.et_wall_s for e in epochs]


def epoch_rows(cache: Path, folder: Path, device: str, epochs: int) -> list[Row]:
    """Median epochs of a few settings, the first ten left out."""
    rows = []
    for parts in (1, 2):
        for name, options in (
            ("vanilla", ["--system", "vanilla"]),
            ("1 bit async", ["--bits", "1", "--schedule", "async"]),
        ):
            if parts == 1 and name != "vanilla":
                continue
            given = ["--dataset", LARGE, "--parts", str(parts), "--layers", "4", "--hidden", "128", "--epochs", str(epochs)]
            place = ["--device", device, "--eval-every", "0", *(["--backend", "gloo"] if parts > 1 else [])]
            _, times = losses_and_times(cache, folder / f"time-{parts}-{name[0]}", [*given, *options, *place])
            median = statistics.median(times[10:] or times)
            rows.append(Row(check=f"epoch, {parts} rank(s), {name}", result=f"{median * 1e3:.1f} ms"))
    return rows


def equality_rows(cache: Path, folder: Path, device: str) -> list[Row]:
    """An exact run on the device against the same on the host, and whether its trace holds together."""
    given = ["--dataset", SMALL, "--parts", "2", "--system", "vanilla", "--dropout", "0", "--epochs", "20", "--eval-every", "0"]
    found, _ = losses_and_times(cache, folder / "device", [*given, "--device", device, "--backend", "gloo", "--trace"])
    wanted, _ = losses_and_times(cache, folder / "host", [*given, "--device", "cpu"])
    worst = max(abs(a - b) for a, b in zip(found, wanted, strict=True))
    valid = subprocess.run(
        [sys.executable, "-m", "sylvie_trace", "validate", str(folder / "device")], capture_output=True, text=True, check=False
    )
    said = ((valid.stdout or valid.stderr).strip().splitlines() or ["no answer"])[-1]
    return [
        Row(
            check="losses, device against host", result=f"20 epochs, differ by {worst:.1e} at most", passed=worst <= _SAME_LOSS
        ),
        Row(check="trace of the device run", result=said[:120], passed=valid.returncode == 0),
    ]


def check(cache: Path, device: torch.device, folder: Path) -> list[Row]:
    """All checks; one that breaks down is a failed row, and the others follow."""
    steps: list[tuple[str, Callable[[], list[Row]]]] = [
        ("codec", lambda: codec_rows(codec_for(device.type), device, 2**26)),
        ("NCCL", lambda: [_nccl_row(device, folder)]),
        ("ages", lambda: [ages_row(cache, folder, device.type)]),
        ("epochs", lambda: epoch_rows(cache, folder, device.type, 40)),
        ("losses", lambda: equality_rows(cache, folder, device.type)),
    ]
    rows: list[Row] = []
    for name, step in steps:
        started = time.perf_counter()
        try:
            found = step()
        except Exception as error:  # the table says what broke; the device's time is short
            found = [Row(check=name, result=f"{type(error).__name__}: {' '.join(str(error).split())[:160]}", passed=False)]
        rows += found
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare or check; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.device_check", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="partitions made by --prepare")
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="make them, where METIS is")
    parser.add_argument("--json", action="store_true", help="the rows as one JSON object instead of a table")
    options = parser.parse_args(argv)
    if options.prepare is not None:
        prepare(options.prepare)
        return 0
    if not torch.cuda.is_available():
        print("device check: skipped, this torch sees no CUDA device")
        return 0
    if options.folder is None or not (options.folder / "sources").is_dir():
        print("device check: name the folder that --prepare filled", file=sys.stderr)
        return 2
    device, folder = torch.device("cuda", 0), Path(tempfile.mkdtemp(prefix="sylvie-device-"))
    try:
        rows = check(options.folder, device, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    name = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    if options.json:
        print(json.dumps({"device": name, "rows": [asdict(row) for row in rows]}))
    else:
        print(name)
        for row in rows:
            print(f"{row.check:38} {'' if row.passed is None else 'ok' if row.passed else 'FAILED':6} {row.result}")
    return 1 if any(row.passed is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
