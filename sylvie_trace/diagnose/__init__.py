"""Why a run is not as fast, or not as good, as the method promises.

§16's causal chain has four links: the boundary's volume falls, so communication takes less time, asynchronous epochs cover
what waiting is left, and node mask, width and forced synchronisation protect the quality. ``diagnose`` judges each link by
the run's own records (with ``against``, a run of an exact system, by comparison) and names what breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sylvie_trace.breakdown import RankParts
from sylvie_trace.diagnose.causes import find_causes
from sylvie_trace.diagnose.facts import gather
from sylvie_trace.diagnose.links import judge
from sylvie_trace.diagnose.types import Cause, Diagnosis, Link
from sylvie_trace.job import Subject, objections
from sylvie_trace.report_types import Finding

__all__ = ["Cause", "Diagnosis", "Link", "diagnose"]


def diagnose(subject: Subject, parts: Sequence[RankParts], against: Subject | None = None) -> Diagnosis:
    """The chain of a run and what breaks it; ``parts`` are the run's (empty without message and span records).

    ``against``: a run of an exact system on the same job, for measured instead of estimated fp32 figures. Raises
    ``ValueError`` when it is another job.
    """
    if against is not None:
        refused = [each for each in objections((against, subject)) if each.refuse]
        if refused:
            raise ValueError(f"{against.name} is no baseline of {subject.name}: {refused[0].evidence}")
    facts = gather(subject, parts, against)
    causes = find_causes(facts)
    links = judge(facts, causes)
    broken = next((link for link in links if link.status == "broken"), None)
    reported = tuple(f for f in subject.report.findings if f.status == "warning" and _is_new(f, causes))
    return Diagnosis(
        run=subject.name,
        verdict=_verdict(links, broken, causes, reported),
        links=links,
        broken=broken.number if broken else None,
        causes=causes,
        findings=reported,
    )


def _is_new(finding: Finding, causes: Sequence[Cause]) -> bool:
    """Whether a warning of the report says something that no cause says already."""
    return finding.check not in {cause.check for cause in causes}


def _verdict(links: Sequence[Link], broken: Link | None, causes: Sequence[Cause], reported: Sequence[Finding]) -> str:
    warnings = [cause for cause in causes if cause.status == "warning"]
    if broken is not None:
        why = next((cause for cause in warnings if cause.link == broken.number), None)
        return f"link {broken.number} breaks ({broken.name}): {why.evidence if why else broken.evidence}"
    if warnings:
        return f"no link breaks, but {warnings[0].evidence}"
    if reported:
        return f"no link breaks, but {reported[0].evidence}"
    if all(link.status in ("holds", "idle") for link in links):
        idle = [str(link.number) for link in links if link.status == "idle"]
        aside = f" (link {' and '.join(idle)}: nothing to gain here)" if idle else ""
        return f"the chain holds{aside}"
    return "no link breaks; " + ", ".join(f"link {x.number} is {x.status}" for x in links if x.status != "holds")
