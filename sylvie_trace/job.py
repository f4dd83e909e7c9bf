"""What job a run did, as which setting, on what: the facts by which runs are grouped, paired and refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sylvie_trace.decision import ADAPTIVE, MAX_BASE
from sylvie_trace.reader import Run
from sylvie_trace.report_types import Report

#: Options of the setting: what systems and controllers do. Runs that differ here are compared.
SETTING_OPTIONS = (
    "system",
    "bits",
    "mask",
    "schedule",
    "mask_thresholds",
    "importance",
    "metadata",
    "ldr_rule",
    "ldr_delta",
    "ldr_lambda",
    "ldr_clock",
    "ldr_link_rate",
    "ldr_max_base",
    "overlap",
    "cache_input_halo",
    "bns_p",
    "pipegcn_smooth",
    "pipegcn_momentum",
)
#: Options that change nothing about what is computed, or only which repeat it is.
_REPEAT_OPTIONS = frozenset(
    (
        "seed",
        "mask_seed",
        "run_dir",
        "cache_dir",
        "data_root",
        "trace",
        "wandb",
        "eval_every",
        "timeout",
        "checkpoint_every",
        "resume",
        "partition",
        "partition_seed",
        "parts",
        "dataset",
        "device",
        "backend",
    )
)


@dataclass(frozen=True)
class Subject:
    """A run with its report, and the directory's name it is called by."""

    name: str
    run: Run
    report: Report

    @property
    def config(self) -> dict[str, Any]:
        """run.json's configuration."""
        return self.run.section("config")

    @property
    def setting(self) -> dict[str, Any]:
        """The options of the setting, those that this run's configuration has, and the number of parts."""
        chosen = {name: self.config[name] for name in SETTING_OPTIONS if name in self.config}
        if chosen.get("bits") == ADAPTIVE:  # runs from before the option doubled up to the paper's 8
            chosen.setdefault("ldr_max_base", str(MAX_BASE))
        else:
            chosen.pop("ldr_max_base", None)
        return {**chosen, "parts": self.run.world_size}

    @property
    def pair(self) -> tuple[object, ...]:
        """Runs of two settings are a pair when this is equal: seed, data, partition, model, number of parts."""
        return (
            self.report.run.seed,
            self.run.section("dataset").get("fingerprint"),
            self.run.section("partition").get("fingerprint"),
            self.config.get("model"),
            self.run.world_size,
        )


@dataclass(frozen=True)
class Objection:
    """A fact in which runs differ: ``refuse`` when nothing can be compared, else a caution beside the numbers."""

    fact: str
    refuse: bool
    evidence: str


def job_options(subject: Subject) -> dict[str, Any]:
    """The options that make up the job: model and training, not the setting and not the repeat."""
    known = subject.config
    return {k: v for k, v in known.items() if k not in SETTING_OPTIONS and k not in _REPEAT_OPTIONS}


def objections(subjects: Sequence[Subject]) -> tuple[Objection, ...]:
    """What stands against comparing these runs, refusals first.

    Other data, another metric, another model or training: refused. Another partition, number of ranks, machine,
    link or program: speeds differ for a reason that is not the setting, which a caution says.
    """
    found = [
        _differing("dataset", True, subjects, lambda s: s.run.section("dataset").get("fingerprint")),
        _differing("metric", True, subjects, lambda s: s.report.quality.metric),
        *_options(subjects),
        _differing("parts", False, subjects, lambda s: s.run.world_size),
        _differing("partition", False, subjects, lambda s: s.run.section("partition").get("fingerprint")),
        _differing("machine", False, subjects, _machine),
        _differing("versions", False, subjects, lambda s: tuple(sorted(_versions(s).items()))),
        _differing("program", False, subjects, lambda s: s.run.info.get("git")),
        _links(subjects),
        _differing("tracing", False, subjects, lambda s: s.run.traced),
        *_incomplete(subjects),
    ]
    kept = [objection for objection in found if objection is not None]
    return tuple(sorted(kept, key=lambda objection: not objection.refuse))


def _differing(fact: str, refuse: bool, subjects: Sequence[Subject], value: Any) -> Objection | None:
    seen: dict[object, str] = {}
    for subject in subjects:
        seen.setdefault(value(subject), subject.name)
    if len(seen) < 2:
        return None
    shown = " and ".join(f"{_short(each)} ({name})" for each, name in list(seen.items())[:2])
    return Objection(fact, refuse, f"{fact} differs: {shown}")


def _short(value: object, limit: int = 60) -> str:
    text = "none recorded" if value is None else str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _options(subjects: Sequence[Subject]) -> Iterable[Objection]:
    """Each option of the job in which runs differ; epochs alone are a caution: quality then has had longer."""
    names: dict[str, None] = {}
    for subject in subjects:
        names.update(dict.fromkeys(job_options(subject)))
    for name in names:
        found = _differing(name, name != "epochs", subjects, lambda s, name=name: repr(s.config.get(name)))
        if found is not None:
            yield found


def _machine(subject: Subject) -> object:
    devices = subject.run.info.get("devices")
    if not isinstance(devices, list):
        return None
    hosts = len({str(d.get("host")) for d in devices if isinstance(d, Mapping)})
    kinds = {
        ", ".join(str(d.get(key)) for key in ("cpu", "cores", "threads", "device")) for d in devices if isinstance(d, Mapping)
    }
    return f"{hosts} host{'s' if hosts > 1 else ''} of {' / '.join(sorted(kinds))}"


def _versions(subject: Subject) -> dict[str, str]:
    wanted = ("python", "torch", "cuda", "nccl", "dgl", "numba")
    return {k: str(v) for k, v in subject.run.section("versions").items() if k in wanted}


def slowest_link(run: Run) -> Mapping[str, Any] | None:
    """The probed link of the lowest rate, None when run.json holds none."""
    links = run.info.get("links")
    known = [each for each in links or () if isinstance(each, Mapping) and each.get("bytes_per_s")]
    return min(known, key=lambda each: float(each["bytes_per_s"]), default=None)


def _links(subjects: Sequence[Subject]) -> Objection | None:
    """Probed rates of one link scatter by a third; beyond a factor of 1.5 it is another link."""
    local = {subject.name: subject.run.info.get("interface") == "lo" for subject in subjects}
    if all(local.values()):
        return None  # a loopback's rate is that of the cores at the moment
    if any(local.values()):
        return Objection(
            "link", False, f"link differs: {next(n for n, own in local.items() if own)} has ranks on one host alone"
        )
    rates = {}
    for subject in subjects:
        link = slowest_link(subject.run)
        if link is not None:
            rates[subject.name] = float(link["bytes_per_s"])
    if not rates:
        return None
    slow, fast = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
    if rates[fast] <= 1.5 * rates[slow]:
        return None
    shown = f"{rates[slow] / 1e6:.4g} MB/s ({slow}) and {rates[fast] / 1e6:.4g} MB/s ({fast})"
    return Objection("link", False, f"link differs: {shown}")


def _incomplete(subjects: Sequence[Subject]) -> Iterable[Objection]:
    for subject in subjects:
        if not subject.run.complete:
            yield Objection("complete", False, f"{subject.name} did not finish: it is left out of the quality")
