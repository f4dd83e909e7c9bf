"""A session whose halo rows arrive as zeros: how much does a graph, split this way, need its neighbours on other ranks?

Everything else is the run as it would be: degrees, messages, gradients, evaluation. The gradients that come back for a
rank's own rows are zeros too, since no other rank's loss depends on them. Rows are zeroed as bytes behind the message's
header, so base 32 alone makes sense here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sylvie.exchange.header import HEADER_BYTES
from sylvie.exchange.reduce import Reducer
from sylvie.exchange.transport import Transport
from sylvie.nn.inputs import InputRows
from sylvie.partition.partition import Partition
from sylvie.session import Session


class ZeroingTransport:
    """Zeroes what arrives behind the first `kept` bytes of each peer's piece."""

    def __init__(self, inner: Transport, kept: int) -> None:
        self.rank, self.world_size = inner.rank, inner.world_size
        self._inner, self._kept = inner, kept

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        """Exchange, then drop the rows."""
        self._inner.all_to_all(recv, send, recv_splits, send_splits)
        for piece in torch.split(recv, recv_splits):
            piece[self._kept :].zero_()

    def all_gather_int64(self, values: Tensor) -> Tensor:
        """[k] -> [N, k], untouched."""
        return self._inner.all_gather_int64(values)

    def close(self) -> None:
        """Give back what the inner transport holds."""
        self._inner.close()


class ZeroHaloSession(Session):
    """Halo rows of every layer, input features and evaluation included, are zero."""

    def _connect(self) -> tuple[Transport, Reducer]:
        if self.config.bits != "32":
            raise ValueError(f"a zero halo needs --bits 32, not {self.config.bits}")
        transport, reducer = super()._connect()
        return ZeroingTransport(transport, HEADER_BYTES), reducer

    def _inputs(self, partition: Partition, transport: Transport, dtype: torch.dtype) -> tuple[Tensor | InputRows, int]:
        """Input rows travel without a header; only a dense form has rows of one size."""
        if not isinstance(partition.features, Tensor):
            raise ValueError("a zero halo needs dense features: add --input-projection K")
        return super()._inputs(partition, ZeroingTransport(transport, kept=0), dtype)
