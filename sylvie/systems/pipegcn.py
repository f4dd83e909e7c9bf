"""pipegcn: fp32 rows, always one epoch stale, optionally smoothed (Wan et al. 2022, arXiv 2203.10428)."""

from dataclasses import replace

from sylvie.exchange.arrivals import Smoothing, Unfiltered
from sylvie.systems.system import System
from sylvie_trace.schema import BACKWARD, FORWARD

PIPEGCN = System(
    name="pipegcn", summary="one epoch stale, fp32 rows, optional smoothing", bits="32", mask="off", schedule="async"
)

_SMOOTHED = {
    "none": frozenset[str](),
    "features": frozenset((FORWARD,)),
    "gradients": frozenset((BACKWARD,)),
    "both": frozenset((FORWARD, BACKWARD)),
}


def pipegcn(smooth: str, momentum: float) -> System:
    """PipeGCN with ``smooth`` (none, features, gradients, both) and its momentum."""
    directions = _SMOOTHED[smooth]
    return replace(PIPEGCN, arrivals=lambda: Smoothing(momentum, directions) if directions else Unfiltered())
