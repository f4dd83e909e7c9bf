"""Configuration and environment as tables of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sylvie_trace.reader import Run
from sylvie_trace.report.terminal import duration, size

#: Above this many ranks or links a table shows the extremes only.
_MANY = 16


@dataclass(frozen=True)
class Table:
    """A small table; cells are plain text."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(run: Run) -> list[Table]:
    """Configuration, dataset, versions, machines, links, partition, clocks: what run.json and the headers say."""
    made = [
        _pairs("Configuration", run.section("config")),
        _pairs("Dataset", run.section("dataset")),
        _pairs("Run", {name: run.info.get(name) for name in ("run_id", "recipe", "git", "backend", "interface", "schema")}),
        _pairs("Versions", run.section("versions")),
        _machines(run.info.get("devices")),
        _links(run.info.get("links")),
        _parts(run.section("partition")),
        _clocks(run),
    ]
    return [table for table in made if table.rows]


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _pairs(title: str, section: Mapping[str, Any]) -> Table:
    return Table(title, (), [(str(name), _text(value)) for name, value in section.items()])


def _dictionaries(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _machines(devices: object) -> Table:
    """Ranks on equal machines share a row."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for device in _dictionaries(devices):
        facts = tuple((str(name), _text(value)) for name, value in device.items() if name != "rank")
        groups.setdefault(facts, []).append(int(device.get("rank", -1)))
    names = list(dict.fromkeys(name for facts in groups for name, _ in facts))
    rows = [(_ranges(ranks), *(dict(facts).get(name, "–") for name in names)) for facts, ranks in groups.items()]
    return Table("Machines", ("ranks", *names), rows)


def _ranges(ranks: Sequence[int]) -> str:
    """``0–3, 7``."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in found)


def _links(links: object) -> Table:
    known = [
        (f"{link.get('src')} to {link.get('dst')}", float(link["bytes_per_s"]), float(link["rtt_s"]))
        for link in _dictionaries(links)
        if isinstance(link.get("bytes_per_s"), int | float) and isinstance(link.get("rtt_s"), int | float)
    ]
    title = "Links, as probed"
    if len(known) > _MANY:
        known.sort(key=lambda link: link[1])
        title += f" (slowest and fastest of {len(known)})"
        known = [*known[:3], *known[-1:]]
    return Table(
        title, ("hosts of ranks", "rate", "round trip"), [(a, f"{size(rate)}/s", duration(rtt)) for a, rate, rtt in known]
    )


def _parts(partition: Mapping[str, Any]) -> Table:
    lists = {name: value for name, value in partition.items() if isinstance(value, list) and value}
    count = min((len(value) for value in lists.values()), default=0)
    rows = [(str(name), _text(value)) for name, value in partition.items() if not isinstance(value, list)]
    if not count:
        return Table("Partition", (), rows)
    for name, value in lists.items():
        numbers = [item for item in value if isinstance(item, int | float)]
        if count > _MANY and numbers:
            shown = f"min {_text(min(numbers))}, mean {sum(numbers) / len(numbers):.6g}, max {_text(max(numbers))}"
        else:
            shown = ", ".join(_text(item) for item in value)
        rows.append((f"{name} by rank", shown))
    return Table("Partition", (), rows)


def _clocks(run: Run) -> Table:
    def moved(ns: int) -> str:
        return f"{ns / 1e6:.3f} ms"

    headers = [trace.header for trace in run.ranks]
    rows = [(str(h.rank), h.host, moved(h.offset_ns), moved(h.offset_bound_ns)) for h in headers]
    title = "Clocks against rank 0"
    if len(rows) > _MANY:
        widest = sorted(run.ranks, key=lambda trace: trace.header.offset_bound_ns)[-3:]
        chosen = {str(trace.rank) for trace in widest}
        rows, title = [row for row in rows if row[0] in chosen], f"{title} (widest bounds of {len(rows)})"
    return Table(title, ("rank", "host", "offset", "bound"), rows)
