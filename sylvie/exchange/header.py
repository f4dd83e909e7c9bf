"""The 32 bytes in front of every message: they say what the message is, so that no buffer is ever taken for another.

Little endian: format (2), direction (1), purpose (1), layer (2), step (2), epoch (4), base width (4), plan id (8), and the
sender's run clock in ns just before the collective (8).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

WIRE_FORMAT = 1
HEADER_BYTES = 32
_STRUCT = struct.Struct("<HBBHHiIQq")

DIRECTION_CODES = {"forward": 0, "backward": 1}
PURPOSE_CODES = {"train": 0, "evaluate": 1, "input_halo": 2}


@dataclass(frozen=True, kw_only=True)
class MessageHeader:
    """The decoded header of one message; ``sent_ns`` is the sender's run clock."""

    wire_format: int
    direction: int
    purpose: int
    layer: int
    step: int
    epoch: int
    base: int
    plan_id: int
    sent_ns: int

    def pack(self) -> bytes:
        """The header's 32 bytes."""
        return _STRUCT.pack(
            self.wire_format,
            self.direction,
            self.purpose,
            self.layer,
            self.step,
            self.epoch,
            self.base,
            self.plan_id,
            self.sent_ns,
        )


def unpack_header(raw: bytes | bytearray | memoryview) -> MessageHeader:
    """Decode 32 bytes; the caller compares the fields with what it expects."""
    fields = _STRUCT.unpack(raw)
    names = ("wire_format", "direction", "purpose", "layer", "step", "epoch", "base", "plan_id", "sent_ns")
    return MessageHeader(**dict(zip(names, fields, strict=True)))


def mismatch(got: MessageHeader, want: MessageHeader) -> str | None:
    """The first field (the clock aside) in which two headers differ, as ``name 3 instead of 4``; None when they agree."""
    for name in ("wire_format", "plan_id", "purpose", "direction", "layer", "step", "epoch", "base"):
        ours, theirs = getattr(want, name), getattr(got, name)
        if ours != theirs:
            return f"{name} {theirs} instead of {ours}"
    return None
