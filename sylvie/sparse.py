"""Sparse products: sums over in-edges, and CSR feature rows times a weight.

DGL's kernels where DGL is installed (and has kernels for the device), torch's sparse product otherwise; both with gradients.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
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


@cache
def dgl_serves(device_type: str) -> bool:
    """Whether DGL is there and has kernels for the device: its CPU wheels have none for CUDA."""
    dgl = load_dgl()
    if dgl is None or device_type == "cpu":
        return dgl is not None
    try:
        dgl.graph(([0], [0])).to(device_type)
    except Exception:  # DGL names no class for it
        return False
    return True


class Adjacency:
    """Edges from ``num_src`` rows to ``num_dst`` rows; ``sum`` adds up the sources of every destination.

    ``src`` and ``dst`` are int32 or int64 [E]. Each sparse form is created once, at its first use.
    """

    def __init__(self, src: Tensor, dst: Tensor, *, num_src: int, num_dst: int, use_dgl: bool = True) -> None:
        self.num_src, self.num_dst, self.num_edges = num_src, num_dst, int(src.shape[0])
        self._dgl = load_dgl() if use_dgl and dgl_serves(src.device.type) else None
        self.src, self.dst = src.to(torch.int32), dst.to(torch.int32)

    @cached_property
    def graph(self) -> Any:
        """The edges as a DGL block."""
        assert self._dgl is not None
        block = self._dgl.create_block(
            (self.src, self.dst), num_src_nodes=self.num_src, num_dst_nodes=self.num_dst, idtype=torch.int32
        )
        block.create_formats_()
        return block

    @cached_property
    def _csr(self) -> Tensor:
        return _csr(self.dst.long(), self.src.long(), self.num_dst, self.num_src)

    @cached_property
    def _csr_t(self) -> Tensor:
        return _csr(self.src.long(), self.dst.long(), self.num_src, self.num_dst)

    @cached_property
    def edge_order(self) -> EdgeOrder:
        """The edges sorted both ways, for values that live on edges; made at the first use."""
        return EdgeOrder.of(self.src, self.dst, self.num_src, self.num_dst)

    def sum(self, rows: Tensor) -> Tensor:
        """[num_src, …] -> [num_dst, …]: the sum over in-edges, 0 without any; differentiable."""
        if self.num_edges == 0:  # keeps the result attached to the autograd graph, on every rank alike
            return rows.new_zeros(self.num_dst, *rows.shape[1:]) + 0 * rows.sum()
        if self._dgl is not None:
            summed: Tensor = self._dgl.ops.copy_u_sum(self.graph, rows)
            return summed
        return _torch_sum(rows, self._csr, self._csr_t)

    def add_sum(self, total: Tensor, rows: Tensor) -> Tensor:
        """``total`` [num_dst, …] plus the sum over in-edges, touching only destinations that have one.

        For edges that reach few destinations, as those from halo rows do. ``total`` is overwritten where autograd allows it.
        """
        reached, compact = self._reached
        return total.index_add_(0, reached, compact.sum(rows))

    @cached_property
    def _reached(self) -> tuple[Tensor, Adjacency]:
        """Destinations with an in-edge, and the same edges with those alone as destinations."""
        reached, place = torch.unique(self.dst.long(), return_inverse=True)
        use_dgl = self._dgl is not None
        return reached, Adjacency(self.src, place, num_src=self.num_src, num_dst=int(reached.shape[0]), use_dgl=use_dgl)


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeOrder:
    """Edges by destination (edge e goes from ``src[e]`` to ``dst[e]``, ``dst`` ascending) and the same edges by source.

    ``matmul`` and ``matmul_t`` multiply by the matrix of per-edge values; torch's CSR product is 4 to 8 times as fast there as
    DGL's ``u_mul_e_sum`` on the CPU (one head, 64 to 256 columns), and serves every device.
    """

    shape: tuple[int, int]  # destinations, sources
    indptr: Tensor  # int32 [destinations + 1]
    src: Tensor  # int32 [E]
    dst: Tensor  # int32 [E]
    indptr_t: Tensor  # int32 [sources + 1]
    dst_t: Tensor  # int32 [E]: destinations, edges in order of their sources
    order_t: Tensor  # int64 [E]: their places in the order by destination

    @classmethod
    def of(cls, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> EdgeOrder:
        """Sort edges given in any order."""
        order = torch.argsort(dst, stable=True)
        src, dst = src[order], dst[order]
        order_t = torch.argsort(src, stable=True)
        return cls(
            shape=(num_dst, num_src),
            indptr=_row_starts(dst, num_dst).to(torch.int32),
            src=src,
            dst=dst,
            indptr_t=_row_starts(src, num_src).to(torch.int32),
            dst_t=dst[order_t],
            order_t=order_t,
        )

    def matmul(self, values: Tensor, rows: Tensor) -> Tensor:
        """Σ over in-edges of value · source row: [E], [sources, D] -> [destinations, D]. No gradient."""
        product: Tensor = _sparse_csr(self.indptr, self.src, values, self.shape) @ rows
        return product

    def matmul_t(self, values: Tensor, rows: Tensor) -> Tensor:
        """Σ over out-edges of value · destination row: [E], [destinations, D] -> [sources, D]. No gradient."""
        backwards = _sparse_csr(self.indptr_t, self.dst_t, values[self.order_t], (self.shape[1], self.shape[0]))
        product: Tensor = backwards @ rows
        return product

    def dots(self, at_dst: Tensor, at_src: Tensor) -> Tensor:
        """Scalar product of both ends' rows on every edge [E]. No gradient."""
        zeros = _sparse_csr(self.indptr, self.src, at_src.new_zeros(self.src.shape[0]), self.shape)
        products: Tensor = torch.sparse.sampled_addmm(zeros, at_dst, at_src.t(), beta=0.0).values()
        return products

    def sum_by_dst(self, values: Tensor) -> Tensor:
        """[E] -> [destinations]; 0 without edges."""
        return torch.segment_reduce(values, "sum", offsets=self.indptr)

    def max_by_dst(self, values: Tensor) -> Tensor:
        """[E] -> [destinations]; −inf without edges."""
        return torch.segment_reduce(values, "max", offsets=self.indptr)

    def sum_by_src(self, values: Tensor) -> Tensor:
        """[E] -> [sources]; 0 without edges."""
        return torch.segment_reduce(values[self.order_t], "sum", offsets=self.indptr_t)


def _row_starts(rows: Tensor, num_rows: int) -> Tensor:
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=rows.device)
    indptr[1:] = torch.bincount(rows, minlength=num_rows).cumsum(0)
    return indptr


def _csr(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Tensor:
    order = torch.argsort(row, stable=True)
    ones = torch.ones(row.shape[0], device=row.device)
    return _sparse_csr(_row_starts(row, num_rows), col[order], ones, (num_rows, num_cols))


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
        row = torch.repeat_interleave(torch.arange(shape[0], device=indptr.device), indptr[1:] - indptr[:-1])
        self._order_t = torch.argsort(indices, stable=True)
        self._indices_t = row[self._order_t]
        self._indptr_t = _row_starts(indices, shape[1])

    def matmul(self, dense: Tensor, values: Tensor | None = None) -> Tensor:
        """[rows, columns] @ [columns, D]; ``values`` [nnz] stand in for the matrix's own (after dropout, say)."""
        kept = self.values if values is None else values
        product: Tensor = _CsrProduct.apply(dense, self, kept.to(dense.dtype))  # type: ignore[no-untyped-call]
        return product

    def to(self, device: torch.device) -> CsrMatrix:
        """The same matrix on ``device``."""
        if self.indptr.device == device:
            return self
        return CsrMatrix(self.indptr.to(device), self.indices.to(device), self.values.to(device), self.shape)

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
