"""The quantizer on a CUDA device: the fused Triton kernels of sylvie.codec.triton_kernels, one launch per
width in a message.

Same bytes as sylvie.codec.reference. Shown so far by Triton's interpreter only: *it has not run on a GPU
yet*, so neither its speed nor its rounding there has been seen.

Nothing here waits for the device, except for the first message of a layout, whose tables are copied there.
Kernels run on the current stream; whether a row was not finite is copied to the host behind them and read
when a later message is encoded, or by check(): the error then names the message it belongs to in its key.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from sylvie.codec.base import NonFiniteRowError
from sylvie.codec.checks import check_decode, check_encode
from sylvie.codec.layout import WIDTHS, BodyLayout, NoiseKey
from sylvie.codec.noise import message_keys

try:
    import triton

    from sylvie.codec.triton_kernels import decode_kernel, encode_kernel, tile
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise ValueError(
        "the cuda codec needs triton, which is not installed: pip install 'sylvie[cuda]'"
    ) from error

_FINE = torch.iinfo(torch.int64).max  # above every row number


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A layout's tensors on the device, and the plan positions of each width's rows."""

    node_ids: Tensor
    row_offset: Tensor
    selected: dict[int, Tensor]


@dataclass(frozen=True, kw_only=True)
class _Status:
    """Where the kernels of one message report: int64 [2], first row that is not finite, first whose index is out of range."""

    device: Tensor
    host: Tensor  # the same, pinned


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """An encoded message whose status is on its way to the host."""

    arrived: torch.cuda.Event | None
    status: _Status
    layout: BodyLayout
    key: NoiseKey


class CudaCodec:
    """The fused Triton kernels; see the module's docstring. Threads and streams may share one."""

    name = "cuda"

    def __init__(self) -> None:
        self._placed: weakref.WeakKeyDictionary[BodyLayout, _Placed] = weakref.WeakKeyDictionary()
        self._pending: list[_Pending] = []
        self._idle: list[_Status] = []  # read by the host, hence out of use on the device
        self._lock = threading.RLock()

    def encode(self, source: Tensor, index: Tensor, layout: BodyLayout, key: NoiseKey, out: Tensor) -> None:
        """See Codec.encode. NonFiniteRowError may be that of an earlier message; check() waits for all of
        them."""
        check_encode(source, index, layout, out)
        self._read_status(wait=False)
        if layout.rows == 0:
            return
        placed, status = self._place(layout, source.device), self._lend_status(source.device)
        status.device.fill_(_FINE)
        k1, k2 = message_keys(key)
        for bits, selected in placed.selected.items():
            shape = tile(layout.dim, bits)
            count = int(selected.shape[0])
            encode_kernel[(triton.cdiv(count, shape["ROWS"]),)](
                source.detach(),
                index,
                placed.node_ids,
                placed.row_offset,
                selected,
                count,
                layout.rows,
                source.shape[0],
                _as_int32(k1),
                _as_int32(k2),
                out,
                status.device,
                BF16=layout.metadata == "bf16",
                enable_fp_fusion=False,
                **shape,
            )
        status.host.copy_(status.device, non_blocking=True)
        arrived = None
        if source.is_cuda:
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        with self._lock:
            self._pending.append(_Pending(arrived=arrived, status=status, layout=layout, key=key))
        if not source.is_cuda:  # under the interpreter everything has happened already
            self._read_status(wait=True)

    def decode(self, body: Tensor, layout: BodyLayout, out: Tensor) -> None:
        """See Codec.decode. Raises ValueError on bad arguments."""
        check_decode(body, layout, out)
        if layout.rows == 0:
            return
        placed = self._place(layout, body.device)
        for bits, selected in placed.selected.items():
            shape = tile(layout.dim, bits)
            count = int(selected.shape[0])
            decode_kernel[(triton.cdiv(count, shape["ROWS"]),)](
                body,
                placed.row_offset,
                selected,
                count,
                layout.rows,
                out.detach(),
                BF16=layout.metadata == "bf16",
                enable_fp_fusion=False,
                **shape,
            )

    def check(self, *, wait: bool = True) -> None:
        """Raise NonFiniteRowError (or ValueError) for the first encoded message with a bad row, having waited
        for them all or looking only at those that the device is done with."""
        self._read_status(wait=wait)

    def _read_status(self, *, wait: bool) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    return
                oldest = self._pending[0]
                ready = wait or oldest.arrived is None or oldest.arrived.query()  # type: ignore[no-untyped-call]
                if not ready:
                    return
                self._pending.pop(0)
            if oldest.arrived is not None:
                oldest.arrived.synchronize()
            not_finite, outside = (int(row) for row in oldest.status.host)
            with self._lock:
                self._idle.append(oldest.status)
            if outside != _FINE:
                raise ValueError(f"index[{outside}] is outside the rows of source")
            if not_finite != _FINE:
                raise NonFiniteRowError(not_finite, int(oldest.layout.node_ids[not_finite]), oldest.key)

    def _lend_status(self, device: torch.device) -> _Status:
        with self._lock:
            while self._idle:
                status = self._idle.pop()
                if status.device.device == device:
                    return status
        return _Status(
            device=torch.empty(2, dtype=torch.int64, device=device),
            host=torch.empty(2, dtype=torch.int64, pin_memory=device.type == "cuda"),
        )

    def _place(self, layout: BodyLayout, device: torch.device) -> _Placed:
        with self._lock:
            placed = self._placed.get(layout)
            if placed is None or placed.node_ids.device != device:
                rows_of = {bits: torch.nonzero(layout.bits == bits).flatten() for bits in WIDTHS}
                placed = _Placed(
                    node_ids=layout.node_ids.to(device),
                    row_offset=layout.row_offset.to(device),
                    selected={bits: rows.to(device) for bits, rows in rows_of.items() if rows.shape[0]},
                )
                self._placed[layout] = placed
            return placed


def _as_int32(key: int) -> int:
    # one Triton type for every key: an integer argument from 2^31 on would be specialised as int64
    return key - 2**32 if key >= 2**31 else key
