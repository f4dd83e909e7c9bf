"""Protection: which rows get more bits, by the degree of their node, as the plan really has it.

The extractor's claim is that nodes of high in-degree travel wider. This looks at the rows of a finished plan, so a mask
that went wrong anywhere before is seen: in run.json, and by ``sylvie-report diagnose``.
"""

from __future__ import annotations

import torch

from sylvie.exchange.plan import ExchangePlan
from sylvie.partition.partition import Partition

#: Quantiles of the in-degree over rows at which a bucket begins.
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)


def levels_by_degree(partition: Partition, plan: ExchangePlan) -> list[dict[str, float | int]]:
    """Mask levels of a rank's rows, sent and received, in buckets of rising in-degree (whole graph).

    A bucket: ``from_quantile``, ``rows``, ``min_degree``, ``max_degree``, ``mean_level``, and ``mean_factor`` = mean of
    2^level, the row's width over the base where 8 bits do not clip it. Rows of equal degree share a bucket; empty ones are
    left out.
    """
    degrees = torch.cat([partition.in_degree[partition.send_index], partition.in_degree[partition.num_inner :]])
    levels = torch.cat([*plan.forward.out_levels, *plan.forward.in_levels]).to(torch.float64)
    if not degrees.numel():
        return []
    ordered = torch.sort(degrees).values
    below = torch.searchsorted(ordered, degrees).to(torch.float64) / degrees.numel()
    edges = torch.tensor(QUANTILES, dtype=torch.float64)
    bucket = torch.searchsorted(edges, below, right=True) - 1
    found: list[dict[str, float | int]] = []
    for number, start in enumerate(QUANTILES):
        inside = bucket == number
        if not bool(inside.any()):
            continue
        own, level = degrees[inside], levels[inside]
        found.append(
            {
                "from_quantile": start,
                "rows": int(inside.sum()),
                "min_degree": int(own.min()),
                "max_degree": int(own.max()),
                "mean_level": float(level.mean()),
                "mean_factor": float(torch.exp2(level).mean()),
            }
        )
    return found
