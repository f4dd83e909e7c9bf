"""The systems by name."""

from sylvie.config import Config
from sylvie.systems.bns_gcn import BNS_GCN, bns_gcn
from sylvie.systems.pipegcn import PIPEGCN, pipegcn
from sylvie.systems.sar import SAR
from sylvie.systems.sylvie import SYLVIE
from sylvie.systems.system import System
from sylvie.systems.vanilla import VANILLA


def system_of(config: Config) -> System:
    """The system that a configuration names, with its own options in place."""
    if config.system == "bns-gcn":
        return bns_gcn(config.bns_p)
    if config.system == "pipegcn":
        return pipegcn(config.pipegcn_smooth, config.pipegcn_momentum)
    if config.system not in SYSTEMS:
        raise ValueError(f"--system {config.system!r} is unknown; use one of {', '.join(SYSTEMS)}")
    return SYSTEMS[config.system]


SYSTEMS = {system.name: system for system in (SYLVIE, VANILLA, PIPEGCN, BNS_GCN, SAR)}

__all__ = ["BNS_GCN", "PIPEGCN", "SAR", "SYLVIE", "SYSTEMS", "VANILLA", "System", "bns_gcn", "pipegcn", "system_of"]
