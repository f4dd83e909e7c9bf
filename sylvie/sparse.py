"""Sparse products: sums over in-edges, and CSR feature rows times a weight.

DGL's kernels where DGL is installed (and has kernels for the device), torch's sparse product otherwise; both with gradients.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def load_dgl() -> Any | None:
    """The dgl module, or None with a one-line notice where it is missing or broken."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL asks for, and writes, a file in the home directory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl
    except Exception as error:  # a broken wheel raises almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(f"DGL is not usable ({reason}); using torch's sparse product", RuntimeWarning, stacklevel=2)
        return None
    return dgl


class Adjacency:
    """Edges from ``num_src`` rows to ``num_dst`` rows; ``sum`` adds up the sources of every destination.

    ``src`` and ``dst`` are int32 or int64 [E]. Formats are created once, here.
    """

    def __init__(self, src: Tensor, dst: Tensor, *, num_src: int, num_dst: int, use_dgl: bool = True) -> None:
        self.num_src, self.num_dst, self.num_edges = num_src, num_dst, int(src.shape[0])
        dgl = load_dgl() if use_dgl else None
        self._dgl = dgl
        self.src, self.dst = src.to(torch.int32), dst.to(torch.int32)
        if dgl is not None:
            self.graph = dgl.create_block(
                (self.src, self.dst), num_src_nodes=num_src, num_dst_nodes=num_dst, idtype=torch.int32
            )
            self.graph.create_formats_()
        else:
            self._csr = _csr(dst.long(), src.long(), num_dst, num_src)
            self._csr_t = _csr(src.long(), dst.long(), num_src, num_dst)

    def sum(self, rows: Tensor) -> Tensor:
        """[num_src, …] -> [num_dst, …]: the sum over in-edges, 0 without any; differentiable."""
        if self.num_edges == 0:  # keeps the result attached to the autograd graph, on every rank alike
            return rows.new_zeros(self.num_dst, *rows.shape[1:]) + 0 * rows.sum()
        if self._dgl is not None:
            summed: Tensor = self._dgl.ops.copy_u_sum(self.graph, rows)
            return summed
        return _torch_sum(rows, self._csr, self._csr_t)


def _csr(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Tensor:
    order = torch.argsort(row, stable=True)
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(row, minlength=num_rows).cumsum(0)
    return _sparse_csr(indptr, col[order], torch.ones(row.shape[0]), (num_rows, num_cols))


def _sparse_csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # torch calls its CSR support a beta on first use
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)


class _TorchSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, csr: Tensor, csr_t: Tensor) -> Tensor:
        ctx.csr_t = csr_t
        return csr.to(rows.dtype) @ rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.csr_t.to(grads[0].dtype) @ grads[0], None, None


def _torch_sum(rows: Tensor, csr: Tensor, csr_t: Tensor) -> Tensor:
    flat = rows.reshape(rows.shape[0], -1)
    summed: Tensor = _TorchSum.apply(flat, csr, csr_t)  # type: ignore[no-untyped-call]
    return summed.reshape(summed.shape[0], *rows.shape[1:])


class CsrMatrix:
    """Constant CSR rows with a product that is differentiable in the dense factor; the transpose is kept beside it."""

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.indptr, self.indices, self.values = indptr, indices, values
        row = torch.repeat_interleave(torch.arange(shape[0]), indptr[1:] - indptr[:-1])
        self._order_t = torch.argsort(indices, stable=True)
        self._indices_t = row[self._order_t]
        self._indptr_t = torch.zeros(shape[1] + 1, dtype=torch.int64)
        self._indptr_t[1:] = torch.bincount(indices, minlength=shape[1]).cumsum(0)

    def matmul(self, dense: Tensor, values: Tensor | None = None) -> Tensor:
        """[rows, columns] @ [columns, D]; ``values`` [nnz] stand in for the matrix's own (after dropout, say)."""
        kept = self.values if values is None else values
        product: Tensor = _CsrProduct.apply(dense, self, kept.to(dense.dtype))  # type: ignore[no-untyped-call]
        return product

    def tensor(self, values: Tensor) -> Tensor:
        """The matrix with these values, as torch's CSR tensor."""
        return _sparse_csr(self.indptr, self.indices, values, self.shape)

    def transposed(self, values: Tensor) -> Tensor:
        """Its transpose, as torch's CSR tensor."""
        return _sparse_csr(self._indptr_t, self._indices_t, values[self._order_t], (self.shape[1], self.shape[0]))


class _CsrProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: CsrMatrix, values: Tensor) -> Tensor:
        ctx.matrix, ctx.values = matrix, values
        return matrix.tensor(values) @ dense

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.matrix.transposed(ctx.values) @ grads[0], None, None
