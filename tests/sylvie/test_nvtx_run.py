"""A whole traced run as a profiler hears it: names, domain, bytes in the payload, balanced on every thread."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.nvtx import site_name
from tests.sylvie.runs import environment

ROOT = Path(__file__).parents[2]
LISTENER = ROOT / "tests" / "sylvie_trace" / "nvtx_listener.c"
PHASES = {"forward", "loss", "backward", "gradient_allreduce", "optimiser", "coordinate"}


@pytest.fixture
def listener(tmp_path: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux to build the listener")
    library = tmp_path / "listener.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(LISTENER)], check=True)
    return library


def heard_by_rank(run_dir: Path, prefix: Path) -> dict[int, list[tuple[str, str, str, int, int]]]:
    """(call, domain, name, payload, thread) of every call, by rank."""
    heard = {}
    for trace in sorted((run_dir / "trace").glob("rank-*.jsonl")):
        header = json.loads(trace.read_text().splitlines()[0])
        lines = [line.split("\t") for line in Path(f"{prefix}{header['pid']}").read_text().splitlines()]
        heard[header["rank"]] = [(line[0], line[1], line[2], int(line[4]), int(line[6])) for line in lines]
    return heard


def expected_sites(run_dir: Path, rank: int) -> Counter[tuple[str, int]]:
    """(name, bytes) of the encodes, transfers and decodes that the trace tells of; evaluation's too."""
    sums: dict[tuple[Any, ...], int] = {}
    for line in (run_dir / "trace" / f"rank-{rank:05d}.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] != "message":
            continue
        sizes = [record[f"{kind}_bytes"] for kind in ("main", "meta", "header")]
        received = [record[f"recv_{kind}_bytes"] for kind in ("main", "meta", "header")]
        for action, size in (("encode", sum(sizes)), ("wire", sum(sizes)), ("decode", sum(received))):
            if record[f"{action}_start_ns"] is not None:
                name = site_name(record["layer"], record["step"], record["direction"], action)
                key = (name, record["purpose"], record["epoch"], record[f"{action}_start_ns"])
                sums[key] = sums.get(key, 0) + size
    return Counter((name, size) for (name, *_), size in sums.items())


def test_a_profiler_hears_every_site_with_its_bytes(listener: Path, tmp_path: Path) -> None:
    prefix, run_dir = tmp_path / "heard.", tmp_path / "run"
    command = [sys.executable, "-W", "ignore", "-m", "sylvie", "--parts", "2", "--epochs", "4", "--hidden", "8", "--trace"]
    command += ["--bits", "2", "--schedule", "async", "--run-dir", str(run_dir)]
    variables = environment(tmp_path) | {"NVTX_INJECTION64_PATH": str(listener), "NVTX_LISTENER_FILE": str(prefix)}
    variables.pop("NVTX_DISABLE", None)
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    heard = heard_by_rank(run_dir, prefix)
    assert set(heard) == {0, 1}
    for rank, calls in heard.items():
        ours = [call for call in calls if call[1] == "sylvie"]
        names = Counter(name for call, _, name, _, _ in ours if call == "push")
        assert [names[f"epoch {epoch}"] for epoch in range(5)] == [1, 1, 1, 1, 0]
        assert all(names[phase] == 4 for phase in PHASES)
        payloads = {name: payload for call, _, name, payload, _ in ours if call == "push" and name.startswith("epoch")}
        assert payloads == {f"epoch {epoch}": epoch for epoch in range(4)}
        sites = Counter((name, payload) for call, _, name, payload, _ in ours if call == "push" and " encode" in name)
        told = Counter({(name, size): n for (name, size), n in expected_sites(run_dir, rank).items() if " encode" in name})
        assert sites == told
        assert {name for name in names if name.startswith("L")} >= {name for name, _ in expected_sites(run_dir, rank)}
        _assert_balanced(ours)


def _assert_balanced(calls: list[tuple[str, str, str, int, int]]) -> None:
    """On every thread each push has its pop, and what opens inside an epoch closes inside it."""
    stacks: dict[int, list[str]] = {}
    for call, _, name, _, thread in calls:
        stack = stacks.setdefault(thread, [])
        if call == "push":
            assert not (name.startswith("epoch") and stack), "an epoch opened inside another range"
            stack.append(name)
        elif call == "pop":
            assert stack, "a pop without its push"
            stack.pop()
    assert len(stacks) >= 2  # the main thread and the exchanges'
    assert not any(stacks.values())
