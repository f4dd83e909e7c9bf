"""Injected faults act on the program they are put into, and only there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.inject import FAULTS, inject
from analysis.studies.diagnosis import KINDS, warnings_of
from sylvie_trace.diagnose import Cause, Diagnosis

ROOT = Path(__file__).resolve().parents[2]
#: What each fault changes, as an expression that is true in a process with the fault and false in one without.
_SIGNS = {
    "slow-rank:2": "__import__('sylvie.trainer').trainer.Trainer._forward_backward.__qualname__.startswith('_slow_rank')",
    "slow-link:1e6": "__import__('sylvie.exchange.transport').exchange.transport.GroupTransport.all_to_all.__qualname__"
    ".startswith('_slow_link')",
    "flat-mask": "levels([0.1, 0.95, 1.0]) == [0, 0, 0]",
    "turned-mask": "levels([0.0, 0.5, 1.0]) == [3, 0, 0]",
    "stuck-width:1": "widths(Controller(config)) == {1}",
    "stuck-width:4": "widths(Controller(config)) == {4}",
    "stuck-width:8": "widths(Controller(config)) == {8}",
}
_PROGRAM = """
import torch
from analysis.inject import inject
from sylvie import extractor
from sylvie_trace.decision import Controller, ControllerConfig
config = ControllerConfig()
def widths(controller):  # of a loss that falls in jumps
    found = []
    for epoch in range(30):
        found.append(controller.base)
        controller.step(epoch, 9.0 - 0.1 * epoch + 0.3 * (epoch % 3), 1.0)
    return set(found)
def levels(p):
    return extractor.mask_levels(torch.tensor(p, dtype=torch.float64), (0.9, 0.97, 0.99)).tolist()
before = {sign}
inject({fault!r})
print(before, {sign})
"""


@pytest.mark.parametrize("fault", _SIGNS)
def test_a_fault_acts(fault: str) -> None:
    code = _PROGRAM.format(sign=_SIGNS[fault], fault=fault)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("False True\n", 0), done.stderr


def test_every_fault_is_tried_and_an_unknown_one_refused() -> None:
    assert {fault.partition(":")[0] for fault in _SIGNS} | {"none"} == set(FAULTS)
    with pytest.raises(ValueError, match="fault 'quake' is unknown"):
        inject("quake")


def test_warnings_are_counted_by_kind() -> None:
    causes = tuple(
        Cause(check=check, status=status, link=3, evidence="", remedy="")
        for check, status in (("slow_rank", "warning"), ("metadata", "note"))
    )
    found = Diagnosis(run="r", verdict="", links=(), broken=None, causes=causes, findings=())
    assert warnings_of(found) == ["slow_rank"] and KINDS["slow_rank"] == "slow rank"
