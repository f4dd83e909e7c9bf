"""sylvie: rows at 1 to 8 bits by importance, a base width that follows the loss, and epochs that may run one behind."""

from sylvie.systems.system import System

SYLVIE = System(
    name="sylvie",
    summary="quantized rows, adaptive width, synchronous or one epoch stale",
    bits=None,
    mask=None,
    schedule=None,
)
