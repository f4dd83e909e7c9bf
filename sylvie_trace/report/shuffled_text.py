"""The shuffled-mask diagnostic on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sylvie_trace.report.terminal import size
from sylvie_trace.shuffled import Effect, ShuffledMask


def render(found: ShuffledMask, console: Console) -> None:
    """Print the notice, each comparison with bytes beside quality, and what was not run."""
    console.print(Text(f"This is {found.notice}.", style="bold"))
    for caution in found.cautions:
        console.print(Text(f"caution  {caution.evidence}", style="bold yellow"), soft_wrap=True)
    for effect in found.effects:
        console.print(Text(f"base {effect.base}, degree against {effect.control}: {effect.verdict}", style="bold"))
        for line in _lines(effect, found.metric or "test metric"):
            console.print(Text(f"  {line}"), soft_wrap=True)
    for missing in found.missing:
        console.print(Text(f"not run: {missing}", style="dim"), soft_wrap=True)


def _lines(effect: Effect, metric: str) -> tuple[str, str, str]:
    low, high = effect.effect.low, effect.effect.high
    bounds = "" if low is None or high is None else f", 95 % interval [{100 * low:+.2f}, {100 * high:+.2f}]"
    seen = "no effect" if effect.detectable is None else f"{100 * effect.detectable:.2f} points"
    ratio = "" if effect.bytes_ratio is None else f", {effect.bytes_ratio:.3f} times the control's"
    return (
        f"{metric} {100 * effect.degree:.2f} % against {100 * effect.shuffled:.2f} % in {effect.pairs} pairs: "
        f"{100 * effect.effect.estimate:+.2f} points{bounds}",
        f"p = {effect.p_value:.3g} by sign flips, {effect.p_holm:.3g} after Holm; {effect.pairs} pairs of this scatter notice "
        f"{seen} with a chance of 80 %",
        f"{size(effect.bytes_degree)} an epoch{ratio}",
    )
