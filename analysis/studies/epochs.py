"""What an epoch of every system takes on links of different rates, and how far that is from what it could be.

Two emulated hosts with a core each, a generated graph in two METIS parts, GraphSAGE of four layers. `bound` is what the epoch
could take at best (`analysis.bounds`): its computation and the bytes that the link's goodput lets through meanwhile. A link
lets its first 128 KiB after a pause through at once, so an epoch of short messages may be faster than its bound. The rate
`none` is the host's own memory: there the cores that move the bytes are the limit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.bench_epoch import COMMON, MORE, ROWS, Bench, measure
from analysis.document import Conditions, write_document
from analysis.netlab import why_unavailable
from analysis.studies import Study

_RATES = ("100mbit", "200mbit", "1gbit", "none")
#: At least this many epochs a setting; more where a controller first watches for δ of them.
_EPOCHS = 20


def _run(quick: bool, out: Path) -> None:
    if (reason := why_unavailable()) is not None:
        raise ValueError(reason)
    conditions = Conditions()
    print("expected: 2 minutes" if quick else "expected: 12 minutes on two idle cores", flush=True)
    nodes, rates = (2000, _RATES[1:2]) if quick else (8000, _RATES)
    rows = [replace(row, epochs=max(row.epochs, _EPOCHS)) for row in (ROWS if quick else (*ROWS, *MORE))]
    common = COMMON | {"dataset": f"generator:nodes={nodes},degree=40,classes=16,features=32"}
    parts: list[Any] = [__doc__.split("\n\n", 1)[1].strip()] if __doc__ else []
    results = {}
    for rate in rates:
        results[rate] = measure(Bench(out / rate, common, 0), rate, rows)
        parts.append(_section(rate, results[rate]))
        write_document(
            out,
            "epochs",
            title="Epochs of every system on links of different rates",
            conditions=conditions,
            parts=parts,
            data={"rates": results},
        )


def _section(rate: str, result: dict[str, Any]) -> str:
    share, vanilla = result["exchange_share"], result["rows"][0]["epoch_s"]
    lines = [
        f"## {rate}: goodput {result['goodput_bytes_per_s'] / 1e6:.1f} MB/s, "
        f"computation {1e3 * result['compute_only_s']:.0f} ms, exchange share of vanilla {share:.2f}",
        "",
        "| setting | epoch, ms | × vanilla | epoch/bound | synchronous epochs, % |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        modes = row["modes"] or {}
        total = sum(modes.get(mode, 0) for mode in ("sync", "async")) or 1
        lines.append(
            f"| {Path(row['run_dir']).name} | {1e3 * row['epoch_s']:.0f} | {vanilla / row['epoch_s']:.2f} | "
            f"{row['epoch_s'] / row['bound_s']:.2f} | {100 * modes.get('sync', 0) / total:.0f} |"
        )
    return "\n".join(lines)


STUDY = Study(name="epochs", title="What an epoch of every system takes on links of different rates", run=_run)
