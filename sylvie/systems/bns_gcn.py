"""bns-gcn: each epoch a random share of the boundary rows, fp32, synchronous (Wan et al. 2022, arXiv 2203.10983)."""

from dataclasses import replace

from sylvie.systems.system import System

BNS_GCN = System(
    name="bns-gcn", summary="a random tenth of the boundary rows, fp32", bits="32", mask="off", schedule="sync", sample=0.1
)


def bns_gcn(share: float) -> System:
    """BNS-GCN with ``share`` = p of every pair's rows."""
    return replace(BNS_GCN, sample=share)
