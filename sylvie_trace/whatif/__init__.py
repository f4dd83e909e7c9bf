"""How long would an epoch take on another link, at other widths, under another schedule, with more ranks?

One traced run is enough: its main-thread work, its codec times and its rows are replayed by a simulator in which the
link, the widths and the modes are those of the question. The run's own sequence of decisions is kept where the question
does not fix an axis: the loss, and so the rule's other outcomes at other epoch times, cannot be known without training.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sylvie_trace.epochs import common_epochs, epoch_times_s, measured_epochs
from sylvie_trace.job import slowest_link
from sylvie_trace.reader import Run
from sylvie_trace.whatif.costs import Assumptions, Traced, calibrate, machine_of, step_of
from sylvie_trace.whatif.program import EpochProgram, programs
from sylvie_trace.whatif.scaling import more_ranks
from sylvie_trace.whatif.simulate import simulate
from sylvie_trace.whatif.types import GOODPUT_SHARE, Prediction, Scenario, parse_rate

__all__ = ["GOODPUT_SHARE", "Prediction", "Scenario", "own_goodput", "parse_rate", "whatif"]

#: Epochs that are replayed at most, in blocks that follow each other in the run.
_MOST_EPOCHS, _BLOCK, _LEAD_IN = 100, 25, 2
#: The corners of what the trace does not determine.
_CORNERS = {"overlap_share": (0.5, 0.9), "cpu_per_byte": (0.2e-9, 1.0e-9), "rate": (0.98, 1.02)}
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
    traced = calibrate(ranks, rate, rtt, _shared_core(run))
    metadata = str(run.section("config").get("metadata"))
    home = Scenario(goodput=rate)
    replayed = np.asarray(_predict(ranks, traced, home, Assumptions(), metadata))
    answers = np.asarray(_predict(ranks, traced, scenario, Assumptions(), metadata))
    low, high = _interval(ranks, traced, scenario, metadata, answers)
    took = float(epoch_times_s(run, chosen).mean())
    return Prediction(
        epoch_s=float(answers.mean()),
        low=low,
        high=high,
        throughput_epochs_per_s=1 / float(answers.mean()),
        compute_s=float(np.mean([[program.work_s for program in rank] for rank in ranks], axis=1).max()),
        bytes_per_rank=_bytes(ranks, traced, scenario, metadata),
        measured_s=took,
        check_s=float(replayed.mean()),
        speedup=took / float(answers.mean()),
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


def _predict(
    ranks: Sequence[Sequence[EpochProgram]], traced: Traced, scenario: Scenario, assumed: Assumptions, metadata: str
) -> list[float]:
    steps = [[step_of(program, traced, scenario, assumed, metadata) for program in rank] for rank in ranks]
    number = len(ranks)
    if scenario.ranks is not None and scenario.ranks != number:
        number = scenario.ranks
        steps = more_ranks(steps, number)
    # The first epochs are run twice: an asynchronous epoch needs one before it, whose rows it uses.
    led_in = [[*own[:_LEAD_IN], *own] for own in steps]
    return simulate(led_in, machine_of(traced, scenario, number, assumed))[min(_LEAD_IN, len(steps[0])) :]


def _interval(
    ranks: Sequence[Sequence[EpochProgram]], traced: Traced, scenario: Scenario, metadata: str, answers: np.ndarray
) -> tuple[float, float]:
    """The extremes over the corners, each widened by the spread of the replayed epochs' mean."""
    corners = [dict(zip(_CORNERS, values, strict=True)) for values in itertools.product(*_CORNERS.values())]
    means = [np.mean(_predict(ranks, traced, scenario, replace(Assumptions(), **c), metadata)) for c in corners]
    draws = np.random.default_rng(1).choice(answers, size=(_RESAMPLES, len(answers)))
    spread = np.percentile(draws.mean(axis=1), [2.5, 97.5]) - answers.mean()
    return float(min(means) + spread[0]), float(max(means) + spread[1])


def _bytes(ranks: Sequence[Sequence[EpochProgram]], traced: Traced, scenario: Scenario, metadata: str) -> float:
    """Bytes an epoch of the busiest rank, as the scenario has them."""
    per_rank = [
        np.mean([sum(c.bytes for c in step_of(p, traced, scenario, Assumptions(), metadata).costs.values()) for p in rank])
        for rank in ranks
    ]
    return float(max(per_rank))


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
