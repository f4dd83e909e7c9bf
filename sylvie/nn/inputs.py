"""Input rows: constant features whose halo rows are known to the rank, so that layer 1 needs no exchange.

Dense or CSR; CSR rows stay sparse up to the first product with a weight. Dropout on CSR drops stored values only (zeros stay
zeros), with this rank's own mask for halo rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.sparse import CsrMatrix


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Dense inner rows [n, D] and halo rows [h, D], both at hand; ``all_rows`` [n + h, D] holds them in one tensor."""

    all_rows: Tensor
    num_inner: int

    @property
    def inner(self) -> Tensor:
        """Rows of the rank's own nodes."""
        return self.all_rows[: self.num_inner]

    @property
    def halo(self) -> Tensor:
        """Rows of remote in-neighbours."""
        return self.all_rows[self.num_inner :]

    def to(self, device: torch.device) -> KnownRows:
        """The same rows on ``device``."""
        return KnownRows(self.all_rows.to(device), self.num_inner)

    @property
    def width(self) -> int:
        """D."""
        return int(self.all_rows.shape[1])

    def linear(self, weight: Tensor) -> KnownRows:
        """Rows times ``weight`` [K, D] transposed, as in torch's linear: [·, D] -> [·, K]."""
        return KnownRows(F.linear(self.all_rows, weight), self.num_inner)

    def dropout(self, p: float, training: bool) -> KnownRows:
        """Drop elements with probability p."""
        return KnownRows(dropout(self.all_rows, p, training), self.num_inner) if training and p else self

    def dense(self) -> KnownRows:
        """Itself."""
        return self

    def inner_linear(self, weight: Tensor) -> Tensor:
        """The inner rows' product alone."""
        return F.linear(self.inner, weight)


@dataclass(frozen=True, eq=False)
class SparseInput:
    """CSR inner and halo rows, [n + h, F] in one matrix; ``values`` replace the matrix's own after dropout."""

    matrix: CsrMatrix
    num_inner: int
    values: Tensor | None = None

    def to(self, device: torch.device) -> SparseInput:
        """The same rows on ``device``."""
        values = None if self.values is None else self.values.to(device)
        return SparseInput(self.matrix.to(device), self.num_inner, values)

    @property
    def width(self) -> int:
        """F."""
        return self.matrix.shape[1]

    def linear(self, weight: Tensor) -> KnownRows:
        """[·, F] -> [·, K] for ``weight`` [K, F]."""
        return KnownRows(self.matrix.matmul(weight.t(), self.values), self.num_inner)

    def inner_linear(self, weight: Tensor) -> Tensor:
        """The inner rows' product alone (computed with the halo's: one product serves both)."""
        return self.linear(weight).inner

    def dropout(self, p: float, training: bool) -> SparseInput:
        """Drop stored values with probability p."""
        if not training or not p:
            return self
        kept = dropout(self.matrix.values if self.values is None else self.values, p, training)
        return SparseInput(self.matrix, self.num_inner, kept)

    def dense(self) -> KnownRows:
        """The rows as a dense tensor; for layers that cannot take CSR."""
        values = self.matrix.values if self.values is None else self.values
        return KnownRows(self.matrix.tensor(values).to_dense(), self.num_inner)


#: What a model is given as ``x`` (a plain Tensor [n, F] where input halos are not cached).
InputRows = KnownRows | SparseInput


def drop(rows: Tensor | InputRows, p: float, training: bool) -> Tensor | InputRows:
    """Dropout on whatever a layer was given; on a plain tensor the owner drops, then sends."""
    if isinstance(rows, Tensor):
        return dropout(rows, p, training)
    return rows.dropout(p, training)


def dense_rows(rows: Tensor | InputRows) -> Tensor | KnownRows:
    """Rows without a sparse form."""
    return rows if isinstance(rows, Tensor) else rows.dense()


def own_rows(rows: Tensor | InputRows) -> Tensor:
    """The inner rows [n, F], dense."""
    return rows if isinstance(rows, Tensor) else rows.dense().inner


def own_linear(linear: nn.Linear, rows: Tensor | InputRows) -> Tensor:
    """``linear`` of the inner rows alone [n, K]; CSR rows stay CSR."""
    if isinstance(rows, Tensor):
        product: Tensor = linear(rows)
        return product
    product = rows.inner_linear(linear.weight)
    return product if linear.bias is None else product + linear.bias


def known(inner: Tensor, halo: Tensor) -> KnownRows:
    """KnownRows from two tensors."""
    return KnownRows(torch.cat([inner, halo]), int(inner.shape[0]))
