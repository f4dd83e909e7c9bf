"""ModelOptions: what every built-in model is built from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Depth, width, and what single models read.

    GAT ``heads``, ``attention_dropout`` and ``residual``; JKNet ``jk``; SGC ``sgc``; GCNII ``alpha`` and ``theta``.
    """

    layers: int = 3
    hidden: int = 64
    dropout: float = 0.5
    norm: str = "none"
    heads: int = 1
    attention_dropout: float = 0.0
    residual: bool = False
    jk: str = "cat"
    sgc: str = "transform"
    alpha: float = 0.1
    theta: float = 0.5
