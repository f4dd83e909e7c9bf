"""sar: exact training with few halo rows in memory (Mostafa 2022, arXiv 2111.06483).

Halo rows arrive peer by peer and are dropped once aggregated; what backward needs of them is fetched again.
"""

from sylvie.systems.system import System, peer_by_peer

SAR = System(
    name="sar",
    summary="exact, synchronous, halo rows peer by peer and rematerialised",
    bits="32",
    mask="off",
    schedule="sync",
    rounds=peer_by_peer,
    rematerialise=True,
)
