"""Is any fixed width and mode both faster and better than the controllers, on a case that counts?

The grid of fixed widths and modes, mask off, beside the default system and beside the paper's: each rule, δ and clock with a
base that doubles up to 8 (`--ldr-max-base 8`). Quality is measured. Time is modelled, for an epoch of `vanilla` that spends the
share s of its time in exchange (s = 0.92, as the paper's runs):

    vanilla 1;   sync (1 − s) + s·b/B;   async max(1 − s, s·b/B)

with b, B the busiest rank's bytes of an epoch (messages and its part of the weight gradients) and those of vanilla. Nothing
overlaps in a sync epoch, so a sync setting can only be faster than said. The clock `link` is the same model inside the rule
(`--ldr-clock modelled` with the rate at which vanilla spends s): what the wall clock would be there, without its noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.cases import WORDNET, Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.link_model import SHARE, busiest_bytes, epoch_share, link_rate
from analysis.settings import Outcome, Setting, paired
from analysis.studies import Study
from analysis.tables import Column, Summary, Table, build_table, summarise, value_at
from sylvie_trace.reader import read_run
from sylvie_trace.schema import SYNC

_FASTER = 1.03
_CLOCKS = ("link", "constant")
_BASELINE = "32 bits, sync"
_DEFAULT = "default, δ 5, link"
_QUALITY = "quality.test_at_best_val"
_COLUMNS = (
    Column(title="test at best validation, %", path=_QUALITY, scale=100, versus="difference"),
    Column(title="modelled speed-up", path="modelled.speedup"),
    Column(title="synchronous epochs, %", path="modelled.sync_share", scale=100, digits=0),
    Column(title="mean base, bits", path="modelled.mean_base"),
    Column(title="epoch on local ranks, ms", path="epoch_time_s.median", scale=1e3, digits=1),
)


@dataclass(frozen=True, kw_only=True)
class Dominance:
    """A fixed setting that is faster than an adaptive one by more than 3 %; `better` is its metric minus the other's, paired.

    It dominates where the 95 % interval of `better` lies above 0.
    """

    fixed: str
    adaptive: str
    faster: float
    better: Summary

    @property
    def dominates(self) -> bool:
        """Faster and surely better."""
        return self.better.low is not None and self.better.low > 0


def _run(quick: bool, out: Path) -> None:
    conditions, driver = Conditions(), Driver(out, keep_going=True)
    print("expected: 2 minutes" if quick else "expected: 35 minutes on two idle cores", flush=True)
    parts: list[str | Table] = [__doc__.split("\n\n", 1)[1].strip()] if __doc__ else []
    pairs: dict[str, list[dict[str, Any]]] = {}
    for name, options, seeds, chosen in _cases(quick):
        common = options | {"dataset": name, "parts": 2, "partition": random_assignment(name, 2, out), "eval-every": 10}
        outcomes = driver.run(paired(_on(common, fixed_grid()), seeds))
        vanilla = next(each for each in outcomes if each.setting.label == _BASELINE and each.report is not None)
        full = busiest_bytes(vanilla.run_dir)[0]
        adaptive = {label: axes for label, axes in adaptive_grid(link_rate(full)).items() if label in chosen or not chosen}
        outcomes += driver.run(paired(_on(common, adaptive), seeds))
        modelled = [with_model(outcome, full) for outcome in outcomes]
        found = compare(modelled)
        pairs[f"{name}, {common['epochs']} epochs"] = [asdict(each) | {"dominates": each.dominates} for each in found]
        title = f"{name}, GraphSAGE, 2 random parts, {common['epochs']} epochs, learning rate {common['lr']}"
        parts += [build_table(title, modelled, _COLUMNS, baseline=_BASELINE), dominance_text(found)]
        write_document(  # after every case: a study that is stopped leaves what it has
            out,
            "execution",
            title="Execution: fixed widths and modes against the controllers",
            conditions=conditions,
            parts=parts,
            data={"share": SHARE, "faster": pairs},
        )


def _cases(quick: bool) -> list[tuple[str, Options, range, tuple[str, ...]]]:
    """Dataset, options, seeds, and the adaptive settings (none: all of them)."""
    small: Options = {"layers": 2, "hidden": 64, "dropout": 0.5}
    if quick:
        return [("generator:nodes=2000", small | {"lr": 0.01, "epochs": 40}, range(2), ())]
    graph = "generator:nodes=12000,degree=10,features=64"
    systems = ("default", "equation to 8")
    few = tuple(f"{system}, δ {delta}, {clock}" for system in systems for delta in (5, 20) for clock in _CLOCKS)
    return [
        (graph, small | {"lr": 0.003, "epochs": 300}, range(6), ()),
        (graph, small | {"lr": 0.01, "epochs": 80}, range(6), few),
        ("wordnet30_lexname", WORDNET | {"epochs": 40}, range(2), few),
    ]


def _on(case: Options, grid: Mapping[str, Options]) -> dict[str, Options]:
    return {label: case | axes for label, axes in grid.items()}


def fixed_grid() -> dict[str, Options]:
    """Every width in both modes, mask off."""
    grid: dict[str, Options] = {}
    for mode in ("sync", "async"):
        for bits in (32, 8, 4, 2, 1):
            grid[f"{bits} bit{'s' * (bits > 1)}, {mode}"] = {"bits": bits, "schedule": mode}
    return grid


def adaptive_grid(rate: str) -> dict[str, Options]:
    """The default system and the paper's, each with δ 5 and 20 on two clocks."""
    clocks: tuple[Options, ...] = ({"ldr-clock": "modelled", "ldr-link-rate": rate}, {"ldr-clock": "constant"})
    systems: dict[str, Options] = {"default": {}}
    systems |= {f"{rule} to 8": {"ldr-rule": rule, "ldr-max-base": 8} for rule in ("equation", "prose", "window")}
    grid: dict[str, Options] = {}
    for name, system in systems.items():
        for delta in (5, 20):
            for clock, options in zip(_CLOCKS, clocks, strict=True):
                grid[f"{name}, δ {delta}, {clock}"] = system | options | {"ldr-delta": delta}
    return grid


def with_model(outcome: Outcome, vanilla_bytes: float) -> Outcome:
    """The outcome with `modelled` in its report: speed-up over vanilla, share of sync epochs, mean base."""
    if outcome.report is None:
        return outcome
    epochs = read_run(outcome.run_dir).ranks[0].epochs
    times = [
        epoch_share(epoch.mode, sent / vanilla_bytes)
        for epoch, sent in zip(epochs, busiest_bytes(outcome.run_dir), strict=True)
    ]
    modelled = {
        "speedup": len(times) / sum(times),
        "sync_share": sum(epoch.mode == SYNC for epoch in epochs) / len(epochs),
        "mean_base": sum(epoch.base_bits for epoch in epochs) / len(epochs),
    }
    return Outcome(
        setting=outcome.setting,
        run_dir=outcome.run_dir,
        report={**outcome.report, "modelled": modelled},
        link=outcome.link,
        reused=outcome.reused,
    )


def compare(outcomes: Sequence[Outcome]) -> list[Dominance]:
    """Every pair of a fixed and an adaptive setting in which the fixed one is more than 3 % faster by the model."""
    labels = {outcome.setting.label: outcome.setting for outcome in outcomes}
    fixed = [label for label, setting in labels.items() if _is_fixed(setting)]
    found = []
    for adaptive in (label for label, setting in labels.items() if not _is_fixed(setting)):
        for label in fixed:
            speeds = _values(outcomes, label, "modelled.speedup"), _values(outcomes, adaptive, "modelled.speedup")
            quality = _values(outcomes, label, _QUALITY), _values(outcomes, adaptive, _QUALITY)
            seeds = sorted(speeds[0].keys() & speeds[1].keys() & quality[0].keys() & quality[1].keys())
            if not seeds:
                continue
            faster = sum(speeds[0][seed] for seed in seeds) / sum(speeds[1][seed] for seed in seeds)
            better = summarise([100 * (quality[0][seed] - quality[1][seed]) for seed in seeds])
            if faster > _FASTER and better is not None:
                found.append(Dominance(fixed=label, adaptive=adaptive, faster=faster, better=better))
    return found


def _is_fixed(setting: Setting) -> bool:
    return "bits" in setting.options


def _values(outcomes: Sequence[Outcome], label: str, path: str) -> Mapping[int, float]:
    pairs = [(each.setting.seed, value_at(each, path)) for each in outcomes if each.setting.label == label]
    return {seed: value for seed, value in pairs if value is not None}


def dominance_text(found: Sequence[Dominance]) -> str:
    """What dominates what; for the default also what is faster without being surely better."""
    sure = [each for each in found if each.dominates]
    lines = [f"Fixed settings more than 3 % faster and better, with a paired 95 % interval above 0: {len(sure)} pairs."]
    lines += [f"* {_pair_text(each)}" for each in sure]
    near = [each for each in found if each.adaptive == _DEFAULT and not each.dominates]
    lines.append(f"\nFaster than the default ({_DEFAULT}) by more than 3 %, not surely better:")
    lines += [f"* {_pair_text(each)}" for each in near] or ["* none"]
    return "\n".join(lines)


def _pair_text(each: Dominance) -> str:
    low, high = each.better.low, each.better.high
    interval = "" if low is None or high is None else f", [{low:+.2f}, {high:+.2f}]"
    return f"{each.fixed} against {each.adaptive}: × {each.faster:.2f}, {each.better.mean:+.2f} points{interval}"


STUDY = Study(name="execution", title="Is a fixed width and mode faster and better than the controllers", run=_run)
