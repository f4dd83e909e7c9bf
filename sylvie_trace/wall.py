"""Wall time of a run by stage, and what Sylvie's own work costs of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sylvie_trace.breakdown import RankParts
from sylvie_trace.epochs import spans_of
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import (
    SPAN_CHECKPOINT,
    SPAN_EVALUATE,
    SPAN_EXTRACT,
    SPAN_LOAD,
    SPAN_PARTITION,
    SPAN_STARTUP,
)
from sylvie_trace.timeline import intervals, subtract, total

#: Span around the whole training loop, epoch -1.
SPAN_TRAIN = "train"


@dataclass(frozen=True)
class Wall:
    """Seconds by stage, each the maximum over ranks; None where no rank recorded the stage.

    ``train`` leaves out evaluations and checkpoints, so the stages do not overlap.
    """

    total: float | None
    startup: float | None
    load: float | None
    partition: float | None
    extract: float | None
    train: float | None
    evaluate: float | None


@dataclass(frozen=True)
class Online:
    """Seconds of a whole run spent on Sylvie's own online work, hidden or not, mean over ranks."""

    encode: float
    decode: float
    coordinate: float


@dataclass(frozen=True)
class Overhead:
    """Shares of training time. ``offline_share`` = offline / (train + offline), offline = partition +
    extract; ``offline_share_without_partition`` counts the extractor alone."""

    offline_share: float | None
    offline_share_without_partition: float | None
    online_share: float | None
    encode_share: float | None
    decode_share: float | None
    coordinate_share: float | None


def wall(run: Run) -> Wall:
    """Wall time by stage."""
    return Wall(
        total=_longest([_total_ns(trace) for trace in run.ranks]),
        startup=_stage(run, SPAN_STARTUP),
        load=_stage(run, SPAN_LOAD),
        partition=_stage(run, SPAN_PARTITION),
        extract=_stage(run, SPAN_EXTRACT),
        train=_longest([_train_ns(run, trace) for trace in run.ranks]),
        evaluate=_stage(run, SPAN_EVALUATE),
    )


def _stage(run: Run, name: str) -> float | None:
    """The longest of the ranks that recorded the stage; a stage of no length (from a cache) took 0 s."""
    code = run.span_names.get(name)
    recorded = [trace for trace in run.ranks if code in trace.spans["name"].tolist()]
    if code is None or not recorded:
        return None
    return max(total(spans_of(run, trace, (name,))) for trace in recorded) / 1e9


def _longest(lengths_ns: Sequence[int]) -> float | None:
    longest = max(lengths_ns, default=0)
    return longest / 1e9 if longest > 0 else None


def _train_ns(run: Run, trace: RankTrace) -> int:
    """The training loop without evaluations and checkpoints; from the epochs when the loop was cut short."""
    loop = spans_of(run, trace, (SPAN_TRAIN,))
    if not loop.size and trace.epochs:
        loop = intervals([trace.epochs[0].start_ns], [trace.epochs[-1].end_ns])
    return total(subtract(loop, spans_of(run, trace, (SPAN_EVALUATE, SPAN_CHECKPOINT))))


def _total_ns(trace: RankTrace) -> int:
    """From the first thing a rank recorded to the last."""
    starts: list[int] = [trace.header.clock_ns]
    if len(trace.spans):
        starts.append(int(trace.spans["start_ns"].min()))
    ends = [trace.header.clock_ns, *(record.end_ns for record in trace.epochs[-1:])]
    if trace.footer is not None:
        ends.append(trace.footer.end_ns)
    return max(ends) - min(starts)


def online(ranks: Sequence[RankParts]) -> Online:
    """Online work over all epochs of the given ranks (not empty)."""

    def seconds(*names: str) -> float:
        return sum(int(rank.parts[name].sum()) for rank in ranks for name in names) / len(ranks) / 1e9

    return Online(
        encode=seconds("encode", "encode_hidden"),
        decode=seconds("decode", "decode_hidden"),
        coordinate=seconds("coordinate"),
    )


def overhead(times: Wall, work: Online | None) -> Overhead:
    """Shares of ``times.train``; None where a stage is not known."""

    def offline_share(*stages: float | None) -> float | None:
        if times.train is None or None in stages:
            return None
        offline = sum(stage for stage in stages if stage is not None)
        return offline / (times.train + offline)

    def share(seconds: float | None) -> float | None:
        return None if times.train is None or seconds is None else seconds / times.train

    return Overhead(
        offline_share=offline_share(times.partition, times.extract),
        offline_share_without_partition=offline_share(times.extract),
        online_share=share(None if work is None else work.encode + work.decode + work.coordinate),
        encode_share=share(None if work is None else work.encode),
        decode_share=share(None if work is None else work.decode),
        coordinate_share=share(None if work is None else work.coordinate),
    )
