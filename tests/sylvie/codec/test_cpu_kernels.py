"""The compiled kernels as a piece of machinery: no GIL, many threads, caches that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
import torch

from sylvie.codec import NoiseKey, body_layout, codec_for, cpu

ROOT = Path(__file__).parents[3]


def test_threads_share_a_codec(key: NoiseKey) -> None:
    codec = codec_for("cpu")
    source = torch.randn(400, 64)
    layouts = [
        body_layout(torch.arange(400) + t, torch.full((400,), 2, dtype=torch.uint8), 64) for t in range(4)
    ]
    bodies = [torch.zeros(layout.nbytes, dtype=torch.uint8) for layout in layouts]

    def work(t: int) -> None:
        for _ in range(20):
            codec.encode(source, torch.arange(400), layouts[t], key, bodies[t])

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for layout, body in zip(layouts, bodies, strict=True):
        alone = torch.zeros_like(body)
        codec_for("cpu", "reference").encode(source, torch.arange(400), layout, key, alone)
        assert torch.equal(alone, body)


def test_the_gil_is_free_while_a_kernel_runs(key: NoiseKey) -> None:
    """The background thread encodes while the main thread computes: it must get on meanwhile."""
    codec, rows = codec_for("cpu"), 40_000
    source, index = torch.randn(rows, 256), torch.arange(rows)
    layout = body_layout(index, torch.full((rows,), 1, dtype=torch.uint8), 256)
    body = torch.zeros(layout.nbytes, dtype=torch.uint8)
    running, done = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        codec.encode(source, index, layout, key, body)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    progress = 0
    while not done.is_set():
        progress += 1
    thread.join()
    assert progress > 200  # with the GIL held: the few turns before the kernel starts


def test_a_place_that_cannot_be_written_only_costs_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def without_cache(*args: Any, cache: bool = False, **options: Any) -> Callable[..., Any]:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        compiled: Callable[..., Any] = real(*args, **options)
        return compiled

    def double(x: int) -> int:
        return 2 * x

    monkeypatch.setattr(numba, "njit", without_cache)
    assert cpu._compile(double, "int64(int64)")(21) == 42


PROGRAM = """
import torch
from sylvie.codec import NoiseKey, body_layout, codec_for
codec = codec_for("cpu")
layout = body_layout(torch.arange(9), torch.full((9,), 4, dtype=torch.uint8), 70)
body = torch.zeros(layout.nbytes, dtype=torch.uint8)
key = NoiseKey(seed=1, epoch=2, layer=1, step=0, direction=0, sender=0)
codec.encode(torch.arange(630.0).view(9, 70).sin(), torch.arange(9), layout, key, body)
print(bytes(body.tolist()).hex())
"""


@pytest.mark.slow
def test_ranks_that_compile_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    for _ in ("cold", "warm"):
        ranks = [
            subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        answers = {rank.communicate(timeout=300)[0] for rank in ranks}
        assert len(answers) == 1 and "".join(answers).strip()
        assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert list(tmp_path.rglob("*.nbi"))
