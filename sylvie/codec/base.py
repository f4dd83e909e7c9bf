"""The one interface of the three codecs (reference, cpu, cuda)."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from sylvie.codec.layout import BodyLayout, NoiseKey


class NonFiniteRowError(ValueError):
    """A row, or its range, is not finite and cannot be quantized.

    ``row`` is its place in plan order, ``node_id`` its global node. ``key`` is the message's: the CUDA codec,
    which never waits for the device, may raise while a later message is being encoded.
    """

    def __init__(self, row: int, node_id: int, key: NoiseKey) -> None:
        direction = "backward" if key.direction else "forward"
        super().__init__(
            f"epoch {key.epoch}, layer {key.layer}, step {key.step}, {direction}: row {row} (global node {node_id}) "
            "is not finite or its range overflows float32"
        )
        self.row = row
        self.node_id = node_id
        self.key = key


class Codec(Protocol):
    """Rows <-> bytes. Both methods write into memory that the caller owns; all tensors are contiguous."""

    name: str

    def encode(self, source: Tensor, index: Tensor, layout: BodyLayout, key: NoiseKey, out: Tensor) -> None:
        """Quantize rows ``source[index]`` into ``out``: float32 [*, D], int64 [m] and uint8 [layout.nbytes].

        ``scale = (max − min)/(2^b − 1)``, ``q = min(floor((h − min)/scale + u), 2^b − 1)`` with u from
        ``key``, the row's global id and the column. Raises NonFiniteRowError.
        """

    def decode(self, body: Tensor, layout: BodyLayout, out: Tensor) -> None:
        """Restore ``scale·q + min`` of every row, in plan order, into ``out`` (float32 [m, D])."""

    def check(self, *, wait: bool = True) -> None:
        """Raise the error of an earlier ``encode`` that has not been seen yet; of all, or of those done without waiting."""
