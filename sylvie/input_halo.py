"""Input rows of a rank: its own constant features and those of remote in-neighbours, fetched once before training."""

from __future__ import annotations

import torch
from torch import Tensor

from sylvie.data.graph import SparseRows
from sylvie.exchange.transport import Transport
from sylvie.nn.inputs import InputRows, KnownRows, SparseInput
from sylvie.partition.partition import Partition
from sylvie.sparse import CsrMatrix


def input_rows(
    partition: Partition, transport: Transport, dtype: torch.dtype, *, needs_halo: bool, cache_halo: bool
) -> tuple[Tensor | InputRows, int]:
    """What a model is given as ``x``, and the bytes this rank sent for it.

    Own and halo rows where the model ``needs_halo`` rows and they are cached (always, in a world of one rank); else own rows
    alone, which the model sends every epoch if it needs to. Raises ValueError where that would make sparse rows dense.
    """
    features = partition.features
    if needs_halo and (cache_halo or transport.world_size == 1):
        return fetch_input_halo(partition, transport, dtype)
    if isinstance(features, Tensor):
        return features.to(dtype), 0
    if needs_halo:
        raise ValueError(
            "--no-cache-input-halo would send sparse features as dense rows every epoch; "
            "add --input-projection K or leave it out"
        )
    matrix = CsrMatrix(
        features.indptr.to(torch.int64), features.indices.to(torch.int64), features.values.to(dtype), features.shape
    )
    return SparseInput(matrix, partition.num_inner), 0


def fetch_input_halo(partition: Partition, transport: Transport, dtype: torch.dtype) -> tuple[InputRows, int]:
    """The rank's inner and halo feature rows, and the bytes it sent to give others theirs. CSR rows stay CSR."""
    features = partition.features
    if isinstance(features, Tensor):
        rows, sent = _exchange_rows(features.to(dtype), partition, transport)
        return KnownRows(torch.cat([features.to(dtype), rows]), partition.num_inner), sent
    return _fetch_sparse(features, partition, transport, dtype)


def _exchange_rows(rows: Tensor, partition: Partition, transport: Transport) -> tuple[Tensor, int]:
    """Rows [n, K] of inner nodes -> rows [h, K] of halo nodes."""
    outgoing = rows[partition.send_index].contiguous()
    width = rows.shape[1] * rows.element_size()
    arrived = torch.empty(partition.num_halo, rows.shape[1], dtype=rows.dtype)
    transport.all_to_all(
        arrived.view(-1).view(torch.uint8),
        outgoing.view(-1).view(torch.uint8),
        [count * width for count in partition.recv_splits],
        [count * width for count in partition.send_splits],
    )
    return arrived, outgoing.numel() * outgoing.element_size()


def _fetch_sparse(
    features: SparseRows, partition: Partition, transport: Transport, dtype: torch.dtype
) -> tuple[SparseInput, int]:
    lengths = (features.indptr[1:] - features.indptr[:-1]).to(torch.int64)
    halo_lengths, sent = _exchange_rows(lengths.unsqueeze(1), partition, transport)
    chosen = _entries(features.indptr, partition.send_index)
    send_counts = [int(part.sum()) for part in torch.split(lengths[partition.send_index], list(partition.send_splits))]
    recv_counts = [int(part.sum()) for part in torch.split(halo_lengths[:, 0], list(partition.recv_splits))]
    pieces = []
    for column in (features.indices.to(torch.int64), features.values.to(dtype)):
        outgoing = column[chosen].contiguous()
        size = outgoing.element_size()
        arrived = torch.empty(sum(recv_counts), dtype=column.dtype)
        transport.all_to_all(
            arrived.view(torch.uint8),
            outgoing.view(torch.uint8),
            [count * size for count in recv_counts],
            [count * size for count in send_counts],
        )
        sent += outgoing.numel() * size
        pieces.append(torch.cat([column, arrived]))
    indptr = torch.cat([features.indptr, features.indptr[-1] + halo_lengths[:, 0].cumsum(0)])
    shape = (partition.num_inner + partition.num_halo, features.shape[1])
    return SparseInput(CsrMatrix(indptr, pieces[0], pieces[1], shape), partition.num_inner), sent


def _entries(indptr: Tensor, rows: Tensor) -> Tensor:
    """Positions of the stored entries of ``rows``, row after row."""
    lengths = indptr[rows + 1] - indptr[rows]
    starts = torch.repeat_interleave(indptr[rows] - (lengths.cumsum(0) - lengths), lengths)
    return starts + torch.arange(int(lengths.sum()))
