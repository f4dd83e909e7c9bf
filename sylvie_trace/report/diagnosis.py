"""A diagnosis on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sylvie_trace.diagnose import Diagnosis

_STYLES = {
    "holds": "green",
    "broken": "bold red",
    "off": "yellow",
    "idle": "cyan",
    "unknown": "dim",
    "warning": "bold yellow",
    "note": "cyan",
}


def render(found: Diagnosis, console: Console) -> None:
    """Print the verdict, the four links, the causes with what to do, and the report's other warnings."""
    console.print(Text(f"{found.run}: {found.verdict}", style="bold"), soft_wrap=True)
    for link in found.links:
        line = Text(f"{link.number}  {link.status:8}", style=_STYLES[link.status])
        line.append(f" {link.name}: {link.evidence}", style="default")
        console.print(line, soft_wrap=True)
    for cause in found.causes:
        line = Text(f"{cause.status:8}", style=_STYLES[cause.status])
        line.append(f" {cause.check}: {cause.evidence}. ", style="default")
        line.append(cause.remedy, style="italic")
        console.print(line, soft_wrap=True)
    for finding in found.findings:
        line = Text("report  ", style=_STYLES["warning"])
        line.append(f" {finding.check}: {finding.evidence}", style="default")
        console.print(line, soft_wrap=True)
