"""Rendering of a run's report: ``build`` computes it, the modules here only format."""

from sylvie_trace.report_types import Report
from sylvie_trace.summary import build

__all__ = ["Report", "build"]
