"""Emulated hosts on one Linux machine: a network namespace a rank, a shaped link a host, counters a link."""

from analysis.netlab.lab import LabResult, NetLab
from analysis.netlab.namespaces import HostCounters, why_unavailable

__all__ = ["HostCounters", "LabResult", "NetLab", "why_unavailable"]
