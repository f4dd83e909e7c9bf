"""What W&B gets at the end of a run: tables, summary figures, and the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from sylvie_trace.columns import DIRECTIONS, PURPOSES, group_codes
from sylvie_trace.details import BYTES, Details, details, message_sizes
from sylvie_trace.reader import Run, read_run
from sylvie_trace.report import html, json_
from sylvie_trace.report_types import Report
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import TRAIN
from sylvie_trace.summary import build, run_parts

TRAFFIC_COLUMNS = ("layer", "step", "direction", "src", "dst", "messages", "rows", *BYTES)


def attach(job: Any, run_dir: RunDir) -> None:
    """Write the run's report and give it, the tables and the summary to the W&B run ``job``."""
    import wandb

    run = read_run(run_dir.path)
    parts = run_parts(run)
    report = build(run, parts)
    detail = details(run, parts)
    json_.write(report, run_dir.report_json)
    html.write(run, report, detail, run_dir.report_html)
    rows = traffic_rows(run, detail.measured)
    if rows:
        job.log({"traffic": wandb.Table(columns=list(TRAFFIC_COLUMNS), data=rows)})
    job.log({"bits": wandb.Table(columns=["epoch", "bits", "rows"], data=bit_rows(detail))})
    job.log({"report": wandb.Html(str(run_dir.report_html), inject=False)})
    job.summary.update(summary(report))
    artifact = wandb.Artifact(f"report-{run.ranks[0].header.run_id}", type="report")
    for path in (run_dir.report_html, run_dir.report_json, run_dir.run_json):
        artifact.add_file(str(path))
    job.log_artifact(artifact)


def traffic_rows(run: Run, measured: tuple[int, ...]) -> list[list[Any]]:
    """A row for every layer, step, direction, sender and receiver: sums over the messages of the measured epochs."""
    names = {code: name for name, code in DIRECTIONS.items()}
    result: list[list[Any]] = []
    for trace in run.ranks:
        table = trace.messages
        table = table[(table["purpose"] == PURPOSES[TRAIN]) & np.isin(table["epoch"], measured)]
        codes = group_codes([table[name] for name in ("layer", "step", "direction", "peer")])
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        sums = {kind: np.bincount(group, weights=size) for kind, size in message_sizes(table).items()}
        rows, messages = np.bincount(group, weights=table["rows"]), np.bincount(group)
        for place, row in enumerate(table[first].rows()):
            site = [row["layer"], row["step"], names[row["direction"]], trace.rank, row["peer"]]
            sizes = [int(sums[kind][place]) for kind in BYTES]
            result.append([*site, int(messages[place]), int(rows[place]), *sizes])
    return sorted(result, key=lambda row: row[:5])


def bit_rows(detail: Details) -> list[list[int]]:
    """Rows sent by epoch and width, all ranks together."""
    epochs = detail.epochs
    return [
        [int(epoch), width, int(number)]
        for index, epoch in enumerate(epochs.epoch)
        for width, counts in epochs.rows.items()
        if (number := counts[index])
    ]


def summary(report: Report) -> dict[str, Any]:
    """The run's figures under the names of report.json; unknown ones are left out."""
    found: dict[str, Any] = {
        "throughput_epochs_per_s": report.throughput_epochs_per_s,
        "compression_ratio": report.compression_ratio,
        "attributed_fraction": report.attributed_fraction,
        "complete": report.run.complete,
        "warnings": sum(finding.status == "warning" for finding in report.findings),
        **{f"quality.{name}": value for name, value in _fields(report.quality).items()},
        **{f"modes.{name.rstrip('_')}": getattr(report.modes, name) for name in ("sync", "async_", "switches", "forced_sync")},
    }
    for name in ("epoch_time_s", "breakdown_s", "bytes_total", "wall_s", "overhead"):
        found |= {f"{name}.{key}": value for key, value in _fields(getattr(report, name)).items()}
    return {name: value for name, value in found.items() if value is not None}


def _fields(record: Any) -> dict[str, Any]:
    names = getattr(record, "__struct_fields__", None) or getattr(record, "__dataclass_fields__", None) or ()
    return {name: getattr(record, name) for name in names}
