"""What the codec tests share: the codecs under test, and one row restored many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
import torch
from torch import Tensor

from sylvie.codec import Codec, NoiseKey, body_layout, codec_for


class Restore(Protocol):
    """A row [D] quantized and restored many times with independent noise: float32 [draws, D]."""

    def __call__(self, row: Tensor, bits: int, draws: int) -> Tensor: ...


@pytest.fixture
def key() -> NoiseKey:
    """Some message's noise key."""
    return NoiseKey(seed=7, epoch=3, layer=1, step=0, direction=0, sender=0)


@pytest.fixture(params=["reference", "cpu"])
def codec(request: pytest.FixtureRequest) -> Iterator[Codec]:
    """Each codec that runs here without a device."""
    yield codec_for("cpu", request.param)


@pytest.fixture
def round_trip() -> Callable[..., tuple[Tensor, Tensor]]:
    """Encode rows with a codec, decode the body again: (body, restored)."""

    def run(
        codec: Codec,
        rows: Tensor,
        bits: int | Tensor,
        key: NoiseKey,
        *,
        node_ids: Tensor | None = None,
        metadata: str = "fp32",
        shift: int = 0,
    ) -> tuple[Tensor, Tensor]:
        count, dim = rows.shape
        widths = torch.full((count,), bits, dtype=torch.uint8) if isinstance(bits, int) else bits
        ids = torch.arange(count) if node_ids is None else node_ids
        layout = body_layout(ids, widths, dim, metadata)
        body = torch.full((layout.nbytes + shift,), 0xA5, dtype=torch.uint8)[shift:]
        codec.encode(rows, torch.arange(count), layout, key, body)
        restored = torch.full((count, dim), torch.nan)
        codec.decode(body, layout, restored)
        return body, restored

    return run


@pytest.fixture
def restore(codec: Codec, key: NoiseKey) -> Restore:
    """One row restored by the codec under test, as so many different nodes."""

    def run(row: Tensor, bits: int, draws: int) -> Tensor:
        layout = body_layout(torch.arange(draws), torch.full((draws,), bits, dtype=torch.uint8), row.shape[0])
        body = torch.empty(layout.nbytes, dtype=torch.uint8)
        codec.encode(row[None, :], torch.zeros(draws, dtype=torch.int64), layout, key, body)
        restored = torch.empty(draws, row.shape[0])
        codec.decode(body, layout, restored)
        return restored

    return run
