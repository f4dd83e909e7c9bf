"""ModelOptions: what every built-in model is built from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Depth, width and the options that single models read (``heads``: GAT; ``jk``: JKNet; ``sgc``: SGC)."""

    layers: int = 3
    hidden: int = 64
    dropout: float = 0.5
    norm: str = "none"
    heads: int = 1
    jk: str = "cat"
    sgc: str = "transform"
