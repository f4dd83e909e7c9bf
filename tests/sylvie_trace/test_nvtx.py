"""NVTX ranges, heard by a real listener; and nothing at all without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sylvie_trace.nvtx import Ranges, site_name

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Two epochs: sites repeated with other bytes, a nested range, a range that ends on another thread.
PROGRAM = """
import threading
import numpy
from sylvie_trace.nvtx import Ranges, site_name
ranges = Ranges(True)
assert ranges.active
encode, wire = site_name(2, 1, "forward", "encode"), site_name(3, 0, "backward", "wire")
for epoch in (11, 12):
    ranges.push_epoch(epoch)
    ranges.push(encode, 100 * epoch)
    ranges.push("inner")
    ranges.pop()
    ranges.pop()
    handle = ranges.start(wire, numpy.int64(7))
    thread = threading.Thread(target=ranges.end, args=(handle,))
    thread.start()
    thread.join()
    ranges.pop()
"""


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux to build the listener")
    library = tmp_path_factory.mktemp("nvtx") / "listener.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "nvtx_listener.c")]
    subprocess.run(command, check=True)
    return library


def test_a_tool_hears_names_domain_bytes_and_balance(listener: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard.tsv"
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(listener), "NVTX_LISTENER_FILE": str(heard)}
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, check=True, timeout=60)
    calls = [line.split("\t") for line in heard.read_text().splitlines()]
    assert {domain for _, domain, *_ in calls} == {"sylvie"}
    expected = []
    for epoch, handle in ((11, "1"), (12, "2")):
        expected += [
            ("push", f"epoch {epoch}", str(epoch), "0"),
            ("push", "L2.1 fwd encode", str(100 * epoch), "0"),
            ("push", "inner", "0", "0"),
            ("pop", "-", "0", "0"),
            ("pop", "-", "0", "0"),
            ("start", "L3.0 bwd wire", "7", handle),
            ("end", "-", "0", handle),
            ("pop", "-", "0", "0"),
        ]
    assert [(call, text, payload, handle) for call, _, text, _, payload, handle, _ in calls] == expected
    integers = {kind for call, _, _, kind, *_ in calls if call in ("push", "start")}
    assert integers == {"2"}  # NVTX_PAYLOAD_TYPE_INT64
    started, ended = (next(c[-1] for c in calls if c[0] == call) for call in ("start", "end"))
    assert started != ended  # on two threads


@pytest.mark.parametrize("enabled", [True, False])
def test_without_a_tool_nothing_happens(enabled: bool) -> None:
    if "NVTX_INJECTION64_PATH" in os.environ:
        pytest.skip("a tool is attached to the tests")
    ranges = Ranges(enabled)
    assert not ranges.active
    ranges.push_epoch(0)
    ranges.push("site", 12)
    ranges.pop()
    ranges.pop()
    ranges.pop()  # unbalanced: still nothing
    handle = ranges.start("site")
    thread = threading.Thread(target=ranges.end, args=(handle,))
    thread.start()
    thread.join()


def test_names_of_sites() -> None:
    assert site_name(2, 1, "forward", "encode") == "L2.1 fwd encode"
    assert site_name(4, 0, "backward", "wait") == "L4.0 bwd wait"
