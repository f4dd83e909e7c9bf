"""vanilla: exact full-graph training, fp32 rows of this epoch — the 1.00× of every speed-up."""

from sylvie.systems.system import System

VANILLA = System(name="vanilla", summary="exact, synchronous, fp32 rows", bits="32", mask="off", schedule="sync")
