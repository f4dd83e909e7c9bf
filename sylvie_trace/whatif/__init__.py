"""How long would an epoch take on another link, at other widths, under another schedule, with more ranks?

One traced run is enough: its main-thread work, its codec times and its rows are replayed by a simulator in which the
link, the widths and the modes are those of the question. The run's own sequence of decisions is kept where the question
does not fix an axis: the loss, and so the rule's other outcomes at other epoch times, cannot be known without training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sylvie_trace.epochs import common_epochs, epoch_times_s, measured_epochs
from sylvie_trace.job import slowest_link
from sylvie_trace.reader import Run
from sylvie_trace.whatif.costs import PAIRWISE_SHARE, Assumptions, Traced, busiest_bytes, calibrate, machine_of, step_of
from sylvie_trace.whatif.program import EpochProgram, programs
from sylvie_trace.whatif.scaling import more_ranks
from sylvie_trace.whatif.simulate import Step, simulate
from sylvie_trace.whatif.types import GOODPUT_SHARE, Prediction, Scenario, parse_rate

__all__ = ["GOODPUT_SHARE", "Prediction", "Scenario", "own_goodput", "parse_rate", "whatif"]

#: Epochs that are replayed at most, in blocks that follow each other in the run.
_MOST_EPOCHS, _BLOCK, _LEAD_IN = 60, 15, 2
#: Steps of the fit that makes the model give the run's own time, and how far it may change the work.
_FIT_STEPS, _FIT_BOUNDS = 3, (0.7, 1.3)
#: How far what the trace does not determine may be from what is assumed.
_EXTREMES = {"turns": (0.93, 1.03), "overlap_share": (0.5, 0.9), "cpu_per_byte": (0.5e-9, 4e-9), "rate": (0.97, 1.03)}
#: A machine's speed from one run to the next, as factors of the work: a tenth between runs was seen on two shared cores.
_DRIFT = (0.93, 1.07)
_RESAMPLES = 2000


def whatif(run: Run, scenario: Scenario) -> Prediction:
    """Predict an epoch's time. ``ValueError`` in one line when the run's records cannot answer."""
    measured = measured_epochs(common_epochs(run))
    if not measured:
        raise ValueError(f"{run.path} has no epoch after the warm-up: nothing can be predicted from it")
    if run.section("config").get("system") == "bns-gcn" and (scenario.bits, scenario.schedule) != (None, None):
        raise ValueError("bns-gcn draws other rows every epoch and has neither widths nor schedules: ask about the link alone")
    chosen = _blocks(measured)
    ranks = programs(run, chosen)
    rate, rtt = own_goodput(run), float((slowest_link(run) or {}).get("rtt_s") or 0.0)
    one_way = _over_gloo(run) and not run.info.get("several_hosts")
    pairwise = _over_gloo(run) and not one_way
    traced = calibrate(
        ranks,
        rate,
        rtt,
        shared_core=_shared_core(run),
        one_way=one_way,
        wire_share=PAIRWISE_SHARE if pairwise else 1.0,
    )
    metadata = str(run.section("config").get("metadata"))
    took = float(epoch_times_s(run, chosen).mean())
    fitted = _Model(ranks, traced, metadata, took)
    central = fitted.assume(Assumptions())
    answers = np.asarray(fitted.epochs(scenario, central))
    low, high = _interval(fitted, scenario, answers)
    return Prediction(
        epoch_s=float(answers.mean()),
        low=low,
        high=high,
        throughput_epochs_per_s=1 / float(answers.mean()),
        compute_s=float(np.mean([[program.work_s for program in rank] for rank in ranks], axis=1).max()),
        bytes_per_rank=fitted.bytes(scenario),
        measured_s=took,
        check_s=float(np.mean(fitted.epochs(Scenario(goodput=rate), Assumptions()))),
        speedup=float(np.mean(fitted.epochs(Scenario(goodput=rate), central))) / float(answers.mean()),
        epochs_replayed=len(chosen),
        assumptions=_said(run, scenario),
    )


def own_goodput(run: Run) -> float:
    """Payload bytes/s of the run's own slowest link, as probed. ``ValueError`` when run.json holds none."""
    link = slowest_link(run)
    if link is None:
        raise ValueError(f"{run.path}/run.json holds no measured link: what the traced one costs is not known")
    return float(link["bytes_per_s"])


def _blocks(epochs: Sequence[int]) -> list[int]:
    """All epochs, or blocks spread evenly over them: an asynchronous epoch needs the one before it."""
    if len(epochs) <= _MOST_EPOCHS:
        return list(epochs)
    starts = np.linspace(0, len(epochs) - _BLOCK, _MOST_EPOCHS // _BLOCK).astype(int)
    return [epochs[start + place] for start in starts for place in range(_BLOCK)]


def _shared_core(run: Run) -> bool:
    """Whether a rank's two threads must share a core: its share of the host's cores is less than its threads and one more."""
    devices = run.info.get("devices")
    if not isinstance(devices, list):
        return True
    hosts: dict[object, int] = {}
    known = [device for device in devices if isinstance(device, Mapping) and isinstance(device.get("cores"), int)]
    for device in known:
        hosts[device.get("host")] = hosts.get(device.get("host"), 0) + 1
    for device in known:
        share = max(1.0, int(device["cores"]) / hosts[device.get("host")])
        if share < int(device.get("threads") or 1) + 1:
            return True
    return not known


def _over_gloo(run: Run) -> bool:
    """Whether gloo carries the rows: on one host fused, a connection's directions taking turns; between hosts pairwise."""
    return run.info.get("backend") == "gloo"


@dataclass(frozen=True)
class _Model:
    """The programs of a run with what was calibrated on them; ``took_s`` is the run's own mean epoch."""

    ranks: Sequence[Sequence[EpochProgram]]
    traced: Traced
    metadata: str
    took_s: float

    def epochs(self, scenario: Scenario, assumed: Assumptions) -> list[float]:
        """Seconds of every replayed epoch."""
        steps = [[self._step(program, scenario, assumed) for program in rank] for rank in self.ranks]
        number = scenario.ranks or len(self.ranks)
        if number != len(self.ranks):
            steps = more_ranks(steps, number)
        # The first epochs are run twice: an asynchronous epoch needs one before it, whose rows it uses.
        led_in = [[*own[:_LEAD_IN], *own] for own in steps]
        return simulate(led_in, machine_of(self.traced, scenario, number, assumed))[min(_LEAD_IN, len(steps[0])) :]

    def _step(self, program: EpochProgram, scenario: Scenario, assumed: Assumptions) -> Step:
        return step_of(program, self.traced, scenario, assumed, self.metadata)

    def assume(self, assumed: Assumptions) -> Assumptions:
        """The assumptions with the work adjusted until the model gives the run's own time, where the work decides it."""
        home, (least, most) = Scenario(goodput=self.traced.bytes_per_s), _FIT_BOUNDS
        work = float(np.mean([program.work_s for rank in self.ranks for program in rank]))
        for _ in range(_FIT_STEPS):
            missing = self.took_s - float(np.mean(self.epochs(home, assumed)))
            if work <= 0 or abs(missing) < 1e-3 * self.took_s:
                break
            assumed = replace(assumed, work=min(most, max(least, assumed.work + missing / work)))
        return assumed

    def bytes(self, scenario: Scenario) -> float:
        """Bytes an epoch of the busiest rank in its busier direction."""
        return max(
            float(np.mean([sum(busiest_bytes(e, scenario.bits, self.metadata) for e in p.exchanges.values()) for p in rank]))
            for rank in self.ranks
        )


def _interval(model: _Model, scenario: Scenario, answers: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The mean with each assumption at its extremes and the machine's drift, their deviations added up, and the spread of the
    replayed epochs' mean.
    """
    middle = float(answers.mean())
    down = up = 0.0
    fitted = model.assume(Assumptions())
    cases = [[model.assume(Assumptions(**{name: value})) for value in extremes] for name, extremes in _EXTREMES.items()]
    for pair in (*cases, [replace(fitted, work=fitted.work * value) for value in _DRIFT]):
        means = [np.mean(model.epochs(scenario, assumed)) for assumed in pair]
        down += min(0.0, *(float(mean) - middle for mean in means))
        up += max(0.0, *(float(mean) - middle for mean in means))
    draws = np.random.default_rng(1).choice(answers, size=(_RESAMPLES, len(answers)))
    spread = np.percentile(draws.mean(axis=1), [2.5, 97.5]) - middle
    return middle + down + float(spread[0]), middle + up + float(spread[1])


def _said(run: Run, scenario: Scenario) -> tuple[str, ...]:
    """What must hold for the prediction to hold."""
    said = []
    described = run.section("describes")
    if scenario.bits is None and described.get("bits") == "adaptive":
        said.append("widths follow the run's own decisions, epoch by epoch")
    if scenario.schedule in (None, "adaptive") and described.get("schedule") == "adaptive":
        said.append("modes follow the run's own decisions, epoch by epoch")
    if scenario.bits is not None:
        said.append(f"every row has {scenario.bits} bits (mask off)")
    if scenario.ranks is not None and scenario.ranks != run.world_size:
        said.append("more ranks share the work evenly; their boundary is guessed, not partitioned")
    return tuple(said)
