"""The shuffled-mask diagnostic on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sylvie_trace.report.terminal import size
from sylvie_trace.shuffled import Effect, ShuffledMask


def render(found: ShuffledMask, console: Console) -> None:
    """Print the notice, one row a comparison, and its verdict."""
    console.print(Text(f"This is {found.notice}.", style="bold"))
    for caution in found.cautions:
        console.print(Text(f"caution  {caution.evidence}", style="bold yellow"), soft_wrap=True)
    table = Table("degree against", box=None, pad_edge=False)
    for heading in ("base", "pairs", "degree", "control", "points [95 %]", "p (Holm)", "seen from", "bytes", "of control's"):
        table.add_column(heading, justify="right")
    for effect in found.effects:
        table.add_row(*_row(effect))
    console.print(table)
    for effect in found.effects:
        console.print(Text(f"base {effect.base}, {effect.control}: {effect.verdict}"), soft_wrap=True)
    for missing in found.missing:
        console.print(Text(f"not run: {missing}", style="dim"), soft_wrap=True)


def _row(effect: Effect) -> tuple[str, ...]:
    low, high = effect.effect.low, effect.effect.high
    bounds = "" if low is None or high is None else f" [{100 * low:+.2f}, {100 * high:+.2f}]"
    seen = "–" if effect.detectable is None else f"{100 * effect.detectable:.2f}"
    return (
        effect.control,
        effect.base,
        str(effect.pairs),
        f"{100 * effect.degree:.2f} %",
        f"{100 * effect.shuffled:.2f} %",
        f"{100 * effect.effect.estimate:+.2f}{bounds}",
        f"{effect.p_value:.3g} ({effect.p_holm:.3g})",
        seen,
        size(effect.bytes_degree),
        "–" if effect.bytes_ratio is None else f"{effect.bytes_ratio:.3f}",
    )
