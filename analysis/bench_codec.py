"""`python -m analysis.bench codec [--json]`: the codecs' rates against a memory copy on the same core in the
same run.

The machine's own speed drifts during a run, so every repetition times copy, encode and decode one after the
other, and a rate is elements over the median time of REPEATS repetitions. The copy is of 64 MiB of float32.
The reference codec, some fifty times slower, is given a sixteenth of the rows.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch

from analysis.bench import OneLineParser
from sylvie.codec import Codec, NoiseKey, body_layout, codec_for
from sylvie.codec.layout import METADATA_BYTES, WIDTHS

COPY_ELEMENTS = 2**24
REPEATS = 7
DIMS = (128, 256)
SHARE = {"reference": 16}  # which part of the copy's elements a codec is given


@dataclass(frozen=True, kw_only=True)
class CodecRate:
    """One codec at one width and row length; ``copy`` was timed between its encodes and decodes."""

    impl: str
    bits: int
    dim: int
    encode_elements_per_s: float
    decode_elements_per_s: float
    copy_elements_per_s: float


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _medians(device: str, steps: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each step, all steps taken in turn, after one untimed turn."""
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(repeats + 1):
        for step, taken in zip(steps, times, strict=True):
            started = _now(device)
            step()
            if turn:
                taken.append(_now(device) - started)
            else:
                _now(device)
    return [statistics.median(taken) for taken in times]


def measure(
    codec: Codec,
    *,
    bits: int,
    dim: int,
    elements: int,
    copy_elements: int,
    repeats: int = REPEATS,
    metadata: str = "fp32",
) -> CodecRate:
    """Rates of one codec on ``elements``/dim standard normal rows of one width, all rows in order."""
    device = "cuda" if codec.name == "cuda" else "cpu"
    original = torch.randn(copy_elements, device=device)
    copied = torch.empty_like(original)
    rows = elements // dim
    source = original[: rows * dim].view(rows, dim)
    restored = copied[: rows * dim].view(rows, dim)
    index = torch.arange(rows, device=device)
    layout = body_layout(torch.arange(rows), torch.full((rows,), bits, dtype=torch.uint8), dim, metadata)
    body = torch.empty(layout.nbytes, dtype=torch.uint8, device=device)
    key = NoiseKey(seed=0, epoch=1, layer=1, step=0, direction=0, sender=0)
    steps = (
        lambda: copied.copy_(original),
        lambda: codec.encode(source, index, layout, key, body),
        lambda: codec.decode(body, layout, restored),
    )
    copy_s, encode_s, decode_s = _medians(device, steps, repeats)
    return CodecRate(
        impl=codec.name,
        bits=bits,
        dim=dim,
        encode_elements_per_s=rows * dim / encode_s,
        decode_elements_per_s=rows * dim / decode_s,
        copy_elements_per_s=copy_elements / copy_s,
    )


@contextmanager
def _one_core() -> Iterator[None]:
    """One torch thread on one core, as many as there were afterwards."""
    threads = torch.get_num_threads()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    torch.set_num_threads(1)
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if cores:
            os.sched_setaffinity(0, cores)


def _table(rates: Sequence[CodecRate]) -> str:
    lines = ["impl       bits  dim   encode Ge/s  share   decode Ge/s  share   copy Ge/s"]
    for r in rates:
        copy = r.copy_elements_per_s
        lines.append(
            f"{r.impl:9} {r.bits:5} {r.dim:4} {r.encode_elements_per_s / 1e9:13.3f} "
            f"{r.encode_elements_per_s / copy:6.2f} {r.decode_elements_per_s / 1e9:13.3f} "
            f"{r.decode_elements_per_s / copy:6.2f} {copy / 1e9:11.2f}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every codec that this machine can run; returns the exit code."""
    parser = OneLineParser(prog="python -m analysis.bench codec", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of a table")
    parser.add_argument(
        "--impl", choices=("reference", "cpu", "cuda"), help="only this codec (all that run here)"
    )
    parser.add_argument(
        "--metadata", choices=tuple(METADATA_BYTES), default="fp32", help="metadata form (fp32)"
    )
    args = parser.parse_args(argv)
    here = ["reference", "cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    if args.impl is not None and args.impl not in here:
        parser.error(f"--impl {args.impl} needs a CUDA device, and none is here")
    rates = []
    with _one_core():
        for impl in [args.impl] if args.impl else here:
            codec = codec_for("cuda" if impl == "cuda" else "cpu", impl)
            elements = COPY_ELEMENTS // SHARE.get(impl, 1)
            rates += [
                measure(
                    codec,
                    bits=bits,
                    dim=dim,
                    elements=elements,
                    copy_elements=COPY_ELEMENTS,
                    metadata=args.metadata,
                )
                for dim in DIMS
                for bits in WIDTHS
            ]
    print(json.dumps({"rows": [asdict(rate) for rate in rates]}) if args.json else _table(rates))
    return 0


if __name__ == "__main__":
    sys.exit(main())
