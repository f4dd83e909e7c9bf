"""What a diagnosis says."""

from __future__ import annotations

import msgspec

from sylvie_trace.report_types import Finding


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain.

    ``status``: ``holds``, ``broken``, ``off`` (the configuration does not try it), ``idle`` (nothing to gain: the exchange is
    no part of the epoch that counts), ``unknown`` (the records do not tell).
    """

    number: int
    name: str
    status: str
    evidence: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Something that breaks or weakens link ``link`` (0: the run as a whole). ``status``: ``warning`` or ``note``."""

    check: str
    status: str
    link: int
    evidence: str
    remedy: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The four links, the first broken one, the causes (warnings first), and the report's other warnings."""

    run: str
    verdict: str
    links: tuple[Link, ...]
    broken: int | None
    causes: tuple[Cause, ...]
    findings: tuple[Finding, ...]
