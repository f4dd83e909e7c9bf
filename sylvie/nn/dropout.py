"""Dropout (Srivastava et al. 2014) whose draws cost little beside the layer: sixteen random bits an element.

torch draws one Bernoulli number an element on one CPU thread, a third of an epoch. Here numpy's SFC64 generator, seeded
from torch's own (so ``torch.manual_seed`` still decides), gives four elements a draw. An element is dropped with probability
round(p·65536)/65536 and the rest are scaled by exactly that, so the expectation is kept.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 1 << 16


def dropout(h: Tensor, p: float, training: bool) -> Tensor:
    """Drop elements of ``h`` with probability p while training; on a device, torch's own dropout."""
    if not training or p == 0:
        return h
    if h.device.type != "cpu":
        return F.dropout(h, p, training)
    threshold = round(p * _STEPS)
    seed = int(torch.randint(1 << 62, ()))
    words = np.random.Generator(np.random.SFC64(seed)).integers(0, 2**64 - 1, (h.numel() + 3) // 4, np.uint64, endpoint=True)
    kept = torch.from_numpy(words.view(np.uint16)[: h.numel()] >= threshold).view(h.shape)
    return h * kept.to(h.dtype).mul_(_STEPS / (_STEPS - threshold))
