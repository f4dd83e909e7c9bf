"""What every codec demands of its arguments, checked once a call and said in one line."""

from __future__ import annotations

import torch
from torch import Tensor

from sylvie.codec.layout import BodyLayout


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _check_body(body: Tensor, layout: BodyLayout, what: str) -> None:
    shaped = body.dtype == torch.uint8 and body.dim() == 1 and body.shape[0] == layout.nbytes
    _require(
        shaped and body.is_contiguous(),
        f"{what} must be contiguous uint8 [{layout.nbytes}], not {body.dtype} {tuple(body.shape)}",
    )


def check_encode(source: Tensor, index: Tensor, layout: BodyLayout, out: Tensor) -> None:
    """Raise ValueError unless source is float32 [*, D], index int64 [m] and out uint8 [nbytes], all
    contiguous."""
    _require(layout.dim >= 1, f"a row needs at least one column, the layout has {layout.dim}")
    shaped = source.dtype == torch.float32 and source.dim() == 2 and source.shape[1] == layout.dim
    _require(
        shaped and source.is_contiguous(),
        f"source must be contiguous float32 [*, {layout.dim}], not {source.dtype} {tuple(source.shape)}",
    )
    _require(
        index.dtype == torch.int64 and tuple(index.shape) == (layout.rows,) and index.is_contiguous(),
        f"index must be contiguous int64 [{layout.rows}], not {index.dtype} {tuple(index.shape)}",
    )
    _check_body(out, layout, "out")


def check_decode(body: Tensor, layout: BodyLayout, out: Tensor) -> None:
    """Raise ValueError unless body is uint8 [nbytes] and out float32 [m, D], both contiguous."""
    _check_body(body, layout, "body")
    shaped = out.dtype == torch.float32 and tuple(out.shape) == (layout.rows, layout.dim)
    _require(
        shaped and out.is_contiguous(),
        f"out must be contiguous float32 [{layout.rows}, {layout.dim}], not {out.dtype} {tuple(out.shape)}",
    )


def index_error(row: int, index: int, source: Tensor) -> ValueError:
    """What to raise for an index that selects no row of source."""
    return ValueError(f"index[{row}] = {index} is outside the {source.shape[0]} rows of source")
