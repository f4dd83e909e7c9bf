"""How fast the emulated links really are, against their nominal rate.

Every bound on an epoch's time uses a link's measured goodput; this study shows how far that is from its name.
TCP, IP and Ethernet headers alone take 4 to 5 % of a packet of 1500 bytes, and beyond a few gigabits a second
the cores that move the bytes are the limit, not the link.
"""

import json
from pathlib import Path
from typing import Any

from analysis.netlab import NetLab
from analysis.run_files import write_atomically
from analysis.studies import Study
from analysis.tables import summarise

_RATES = ("100mbit", "200mbit", "1gbit", "10gbit", "none")


def _run(quick: bool, out: Path) -> None:
    rates, repeats = (_RATES[1:3], 2) if quick else (_RATES, 5)
    rows: list[dict[str, Any]] = []
    for rate in rates:
        with NetLab(2, rate) as lab:
            speeds = [speed for _ in range(repeats) if (speed := lab.measure_goodput()) is not None]
            nominal = None if lab.rate.bits_per_s is None else lab.rate.bits_per_s / 8
        summary = summarise(speeds)
        assert summary is not None and summary.std is not None
        rows.append(
            {
                "rate": rate,
                "nominal_bytes_per_s": nominal,
                "goodput_bytes_per_s": speeds,
                "mean_bytes_per_s": summary.mean,
                "std_bytes_per_s": summary.std,
                "share_of_nominal": None if nominal is None else summary.mean / nominal,
            }
        )
    write_atomically(out / "links.json", json.dumps({"hosts": 2, "rows": rows}, indent=1) + "\n")
    write_atomically(out / "links.md", _markdown(rows, repeats))


def _markdown(rows: list[dict[str, Any]], repeats: int) -> str:
    lines = ["## Goodput of the emulated links", "", "| rate | goodput, MB/s | of nominal |", "|---|---|---|"]
    for row in rows:
        mean, std, share = row["mean_bytes_per_s"], row["std_bytes_per_s"], row["share_of_nominal"]
        assert isinstance(mean, float) and isinstance(std, float)
        text = f"{100 * share:.1f} %" if isinstance(share, float) else "no nominal rate"
        lines.append(f"| {row['rate']} | {mean / 1e6:.2f} ± {std / 1e6:.2f} | {text} |")
    note = (
        f"Two hosts, both directions at once, the slower one; mean ± standard deviation of {repeats} probes."
    )
    return "\n".join([*lines, "", note]) + "\n"


STUDY = Study(
    name="links", title="How fast the emulated links really are, against their nominal rate", run=_run
)
