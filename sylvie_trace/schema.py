"""The versioned records of a run: the vocabulary that the trainer writes and every analysis reads.

A trace file is one JSON object a line: first a ``header``, last a ``footer`` (absent after a crash).
Times are nanoseconds of the writing rank's *run clock* (``time.monotonic_ns``); ``Header.offset_ns``
moves them onto rank 0's clock. A field that cannot be known is ``None``, never a made-up number.
"""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1

#: Directions of a message, as they stand in headers and records.
FORWARD, BACKWARD = "forward", "backward"
#: Execution modes of an epoch.
SYNC, ASYNC = "sync", "async"
#: Purposes of a message: only ``train`` enters the epoch's bytes.
TRAIN, EVALUATE, INPUT_HALO = "train", "evaluate", "input_halo"
#: Threads that a timed piece of work can run on.
MAIN, BACKGROUND = "main", "background"

# Names of spans. Those of a training epoch run on the main thread and enclose the exchanges' sites.
SPAN_FORWARD, SPAN_LOSS, SPAN_BACKWARD, SPAN_OPTIMISER = "forward", "loss", "backward", "optimiser"
SPAN_GRADIENT_ALLREDUCE, SPAN_COORDINATE = "gradient_allreduce", "coordinate"
SPAN_EVALUATE, SPAN_CHECKPOINT = "evaluate", "checkpoint"
# Spans of the offline stage and of the start (epoch -1).
SPAN_STARTUP, SPAN_LOAD, SPAN_PARTITION, SPAN_EXTRACT, SPAN_INPUT_HALO = (
    "startup",
    "load",
    "partition",
    "extract",
    "input_halo",
)


class Record(msgspec.Struct, tag_field="kind", kw_only=True, omit_defaults=False):
    """Base of all records; the ``kind`` field tells them apart."""


class Header(Record, tag="header"):
    """Who wrote this file, on which clock. ``offset_ns`` = this rank's run clock minus rank 0's."""

    schema: int
    run_id: str
    rank: int
    world_size: int
    pid: int
    host: str
    wall_ns: int
    clock_ns: int
    offset_ns: int
    offset_bound_ns: int
    trace: bool


class Epoch(Record, tag="epoch"):
    """One epoch of one rank.

    ``start_ns`` to ``end_ns`` covers forward, backward, all-reduce, optimiser and coordination.
    ``epoch_time_ns`` is this rank's own time to the end of the optimiser step; ``et_wall_s`` is its maximum
    over ranks and ``et_s`` what the rule divided by (another value under a constant or modelled clock).
    ``main_bytes`` … count the training messages that this rank produced in this epoch;
    ``fp32_equivalent_bytes`` = Σ rows · 4 · width of the same messages.
    """

    epoch: int
    mode: str
    base_bits: int
    start_ns: int
    end_ns: int
    epoch_time_ns: int
    loss: float | None
    smoothed_loss: float | None
    ldr: float | None
    descent_rate: float | None
    et_wall_s: float
    et_s: float
    rows: int
    main_bytes: int
    meta_bytes: int
    header_bytes: int
    gradient_allreduce_bytes: int
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    fp32_equivalent_bytes: int | None = None


class Decision(Record, tag="decision"):
    """What the controllers concluded at the end of ``epoch`` for the next one.

    ``outcome``: ``true`` (raise the width, synchronise), ``false`` (lower it, run ahead), ``hold``.
    ``forced_sync`` says that a true rule made the *next* epoch synchronous (t > δ). ``max_base``: where the doubling ends.
    """

    epoch: int
    rule: str
    clock: str
    smoothing: float
    delta: int
    ldr: float | None
    ldr_reference: float | None
    outcome: str
    base_before: int
    base_after: int
    mode_before: str
    mode_after: str
    forced_sync: bool
    max_base: int = 8


class Bits(Record, tag="bits"):
    """Rows that this rank sent in an epoch's training messages, by width; keys are decimal widths."""

    epoch: int
    base_bits: int
    histogram: dict[str, int]


class Message(Record, tag="message", gc=False):
    """One message to, and its counterpart from, one peer in one exchange (layer, step, direction).

    Bytes and rows without a prefix were *sent* to ``peer`` (counted at the sender); ``recv_*`` came from it.
    ``epoch`` is the epoch that produced the sent rows. ``recv_epoch`` stands in the received header,
    ``consumed_epoch`` is the epoch whose layer used the received rows (``None``: dropped or drained,
    ``unused`` true), ``age`` their difference. ``sent_ns`` is read from the received header: the *peer's*
    run clock just before the collective. Encode, queue, wire, decode and wait times are common to all peers
    of a fused collective (``fused`` true). ``wait_*`` is the main thread standing still for this exchange, in
    ``wait_epoch``; ``None`` where nobody waited.
    """

    purpose: str
    epoch: int
    layer: int
    step: int
    direction: str
    peer: int
    mode: str
    width: int
    rows: int
    main_bytes: int
    meta_bytes: int
    header_bytes: int
    recv_rows: int
    recv_main_bytes: int
    recv_meta_bytes: int
    recv_header_bytes: int
    recv_epoch: int | None
    consumed_epoch: int | None
    age: int | None
    unused: bool
    sent_ns: int | None
    fused: bool
    encode_start_ns: int | None = None
    encode_end_ns: int | None = None
    encode_thread: str = MAIN
    queued_ns: int | None = None
    wire_start_ns: int | None = None
    wire_end_ns: int | None = None
    decode_start_ns: int | None = None
    decode_end_ns: int | None = None
    decode_thread: str = MAIN
    wait_start_ns: int | None = None
    wait_end_ns: int | None = None
    wait_epoch: int | None = None


class Reuse(Record, tag="reuse"):
    """Rows used a second time: the first asynchronous epoch uses what the last synchronous one received."""

    epoch: int
    layer: int
    step: int
    direction: str
    peer: int
    recv_epoch: int
    age: int


class Span(Record, tag="span", gc=False):
    """A named stretch of work; ``epoch`` is -1 outside training, layer and step where they mean nothing."""

    name: str
    epoch: int
    start_ns: int
    end_ns: int
    layer: int = -1
    step: int = -1
    thread: str = MAIN


class Fault(Record, tag="fault"):
    """An error that ended the rank, with where it stood; ``error`` is the exception's class name."""

    epoch: int
    error: str
    message: str
    layer: int | None = None
    step: int | None = None
    direction: str | None = None
    peer: int | None = None


class Footer(Record, tag="footer"):
    """The rank's last word: totals over the whole run.

    ``bytes`` has the keys train, evaluate, input_halo, gradient_allreduce, control, unused (all counted at
    the sender). ``unused`` messages are *not* in train.
    """

    complete: bool
    end_ns: int
    bytes: dict[str, int]
    peak_memory_mb: float | None
    device_peak_mb: float | None
    quality: dict[str, float | int | str | None] = msgspec.field(default_factory=dict)


AnyRecord = Header | Epoch | Decision | Bits | Message | Reuse | Span | Fault | Footer
