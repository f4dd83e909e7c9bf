"""Follows a trace while it is written: the few records of an epoch, never its messages and spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from sylvie_trace.schema import AnyRecord, Bits, Decision, Epoch, Fault, Footer, Header

#: Records that are passed over before they are decoded.
_DETAILS = tuple(f'{{"kind":"{kind}"'.encode() for kind in ("message", "span", "reuse"))

EpochRecord = Header | Epoch | Decision | Bits | Fault | Footer


def follow(path: Path, ended: Callable[[], bool], *, poll_s: float = 0.25) -> Iterator[EpochRecord]:
    """Yield the records of ``path`` as they come, until its footer, or until ``ended`` and no line is left.

    The file may not be there yet. A line is taken once it is whole; ``ValueError`` for one that is no record.
    """
    while not path.exists():
        if ended():
            return
        time.sleep(poll_s)
    decode = msgspec.json.Decoder(AnyRecord).decode
    rest, number = b"", 0
    with path.open("rb") as file:
        while True:
            last = ended()  # asked first: what was written before the end is still read
            chunk = file.read(1 << 20)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                if line.startswith(_DETAILS):
                    continue
                try:
                    record = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise ValueError(f"{path}:{number}: not a record: {error}") from None
                if isinstance(record, EpochRecord):
                    yield record
                if isinstance(record, Footer):
                    return
            if not chunk:
                if last:
                    return
                time.sleep(poll_s)
