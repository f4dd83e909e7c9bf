"""Rows <-> bytes: the quantizer in three implementations that give identical bytes, and where each byte
lies."""

from __future__ import annotations

from sylvie.codec.base import Codec, NonFiniteRowError
from sylvie.codec.layout import BodyLayout, NoiseKey, body_layout

__all__ = [
    "CODECS",
    "BodyLayout",
    "Codec",
    "NoiseKey",
    "NonFiniteRowError",
    "body_layout",
    "codec_for",
    "warm_up",
]

CODECS = ("reference", "cpu", "cuda")


def warm_up() -> None:
    """Compile the fast CPU codec, or load it from numba's cache, outside any epoch; safe in many processes at
    once."""
    from sylvie.codec.cpu import warm_up as compile_kernels

    compile_kernels()


def codec_for(device_type: str, kind: str | None = None) -> Codec:
    """The codec for tensors on ``device_type`` ("cpu", "cuda"); ``kind`` names one of CODECS instead of the
    fast one.

    The fast CPU codec is compiled (or loaded from numba's cache) here, so that no epoch pays for it. Raises
    ValueError for an unknown name, for one that does not fit the device, and where Triton is missing.
    """
    if kind is None:
        kind = "cuda" if device_type == "cuda" else "cpu"
    if kind == "reference":
        from sylvie.codec.reference import ReferenceCodec

        return ReferenceCodec()
    if kind not in CODECS or kind != device_type:
        raise ValueError(
            f"no codec {kind!r} for device {device_type!r}; use one of {', '.join(CODECS)} on its own device (reference on any)"
        )
    if kind == "cpu":
        from sylvie.codec.cpu import CpuCodec

        warm_up()
        return CpuCodec()
    from sylvie.codec.cuda import CudaCodec

    return CudaCodec()
