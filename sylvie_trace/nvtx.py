"""NVTX ranges in the domain ``sylvie``: built once a site, free when no tool listens, never a crash.

The range of an epoch is ``epoch 12``; a site inside it is ``L2.1 fwd encode`` (layer.step direction action).
The bytes of a site travel in the integer payload, the form that every profiler keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sylvie_trace.schema import FORWARD

DOMAIN = "sylvie"


def site_name(layer: int, step: int, direction: str, action: str) -> str:
    """The name of an exchange's site, such as ``L2.1 fwd encode``; build it once and keep it."""
    return f"L{layer}.{step} {'fwd' if direction == FORWARD else 'bwd'} {action}"


def _ignore(site: str, payload: int = 0) -> None:
    """Stands in for ``push`` where nobody listens."""


def _ignore_none() -> None:
    """Stands in for ``pop`` where nobody listens."""


def _no_handle(site: str, payload: int = 0) -> int:
    """Stands in for ``start`` where nobody listens."""
    return 0


def _ignore_handle(handle: int) -> None:
    """Stands in for ``end`` where nobody listens."""


def _listening_domain() -> Any | None:
    """The domain, if a tool is attached to it; None also where the nvtx package is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    domain = nvtx.get_domain(DOMAIN)
    return None if domain.get_event_attributes("sylvie") is None else domain


class Ranges:
    """Named ranges for a profiler.

    ``push(site, payload=0)`` and ``pop()`` nest on one thread; ``start(site, payload=0)`` returns a handle
    that ``end(handle)`` may close on another thread. A site's attributes are built at its first use and
    reused, so a site belongs to one thread. Disabled, or without a tool, all four functions do nothing.
    """

    push: Callable[..., None]
    pop: Callable[[], None]
    start: Callable[..., int]
    end: Callable[[int], None]

    def __init__(self, enabled: bool) -> None:
        self._domain: Any = None
        self._attributes: dict[str, Any] = {}
        if enabled:
            self._domain = _listening_domain()
        self.active = self._domain is not None
        self.push, self.pop, self.start, self.end = (
            (self._push, self._domain.pop_range, self._start, self._domain.end_range)
            if self.active
            else (_ignore, _ignore_none, _no_handle, _ignore_handle)
        )

    def _site(self, site: str, payload: int) -> Any:
        attributes = self._attributes.get(site)
        if attributes is None:
            attributes = self._attributes[site] = self._domain.get_event_attributes(message=site)
        attributes.payload = int(payload)  # a numpy integer would become a structured payload
        return attributes

    def _push(self, site: str, payload: int = 0) -> None:
        self._domain.push_range(self._site(site, payload))

    def _start(self, site: str, payload: int = 0) -> int:
        handle: int = self._domain.start_range(self._site(site, payload))
        return handle

    def push_epoch(self, epoch: int) -> None:
        """Open the range of an epoch; closed by ``pop``. Not cached: each epoch's name occurs once."""
        if self.active:
            attributes = self._domain.get_event_attributes(message=f"epoch {epoch}", payload=epoch)
            self._domain.push_range(attributes)
