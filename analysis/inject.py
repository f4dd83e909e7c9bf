"""One rank of sylvie-train with a fault in it: ``torchrun … -m analysis.inject FAULT[:STRENGTH] ARGUMENTS…``.

    slow-rank:F    rank 1's forward pass begins with a pause of F times what its last forward and backward pass took
    slow-link:R    every collective of rows takes what its bytes take at R bytes/s more
    flat-mask      all boundary nodes are at mask level 0, those of high degree as well
    turned-mask    levels are given to the nodes of lowest degree
    stuck-width:B  the base width is B whatever the rule concludes
    none           nothing: the control

The program under test is not changed: its parts are replaced in this process alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any


def _slow_rank(strength: float) -> None:
    from sylvie.trainer import Trainer

    original: Any = Trainer._forward_backward
    known = {"pass_s": 0.0}

    def slower(self: Any) -> Any:
        if os.environ.get("RANK") != "1":
            return original(self)
        pause = strength * known["pass_s"]
        handle = self.model.register_forward_pre_hook(lambda *_: time.sleep(pause))
        start = time.monotonic()
        loss = original(self)
        known["pass_s"] = time.monotonic() - start - pause
        handle.remove()
        return loss

    setattr(Trainer, original.__name__, slower)


def _slow_link(rate: float) -> None:
    from sylvie.exchange.transport import GroupTransport

    original = GroupTransport.all_to_all

    def slower(self: Any, recv: Any, send: Any, recv_splits: list[int], send_splits: list[int]) -> None:
        original(self, recv, send, recv_splits, send_splits)
        time.sleep(max(sum(send_splits), sum(recv_splits)) / rate)

    setattr(GroupTransport, original.__name__, slower)


def _mask(change: Callable[[Any], Any]) -> None:
    from sylvie import extractor

    original = extractor.mask_levels
    extractor.mask_levels = lambda p, thresholds: change((original, p, thresholds))


def _flat_mask(_: float) -> None:
    _mask(lambda given: given[0](given[1] * 0 - 1, given[2]))


def _turned_mask(_: float) -> None:
    _mask(lambda given: given[0](1 - given[1], given[2]))


def _stuck_width(base: float) -> None:
    """The rule decides and says what it decided; the width stays where it is."""
    from sylvie_trace import decision

    width, rightly = int(base), decision.decide

    def stuck(config: Any, state: Any, **epoch: Any) -> Any:
        state, verdict = rightly(config, state, **epoch)
        return replace(state, base=width), replace(verdict, base_next=width)

    decision.MIN_BASE = width  # before the first epoch
    decision.decide = stuck


FAULTS: dict[str, Callable[[float], None]] = {
    "slow-rank": _slow_rank,
    "slow-link": _slow_link,
    "flat-mask": _flat_mask,
    "turned-mask": _turned_mask,
    "stuck-width": _stuck_width,
    "none": lambda _: None,
}


def inject(fault: str) -> None:
    """Put a fault into this process. ``ValueError`` for an unknown one."""
    name, _, strength = fault.partition(":")
    if name not in FAULTS:
        raise ValueError(f"fault {name!r} is unknown: use one of {', '.join(FAULTS)}")
    FAULTS[name](float(strength or 1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject the first argument's fault and train with the others; returns the exit code."""
    fault, *rest = list(sys.argv[1:] if arguments is None else arguments)
    inject(fault)
    from sylvie.cli import main as train

    return train(rest)


if __name__ == "__main__":
    sys.exit(main())
