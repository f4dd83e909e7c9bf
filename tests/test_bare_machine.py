"""What a machine without the optional packages can still do: train on a partition made elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: As ``sitecustomize`` it makes every Python process one of a machine that has none of these packages.
BLOCK = """
import sys

class Missing:
    names = {"dgl", "pymetis", "nvtx", "wandb", "plotly", "polars", "tyro", "torch_geometric", "ogb"}

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
GRAPH = ("--dataset", "generator:nodes=300", "--parts", "2")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCK)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site")}


def run(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_the_packages_are_really_missing(bare: dict[str, str]) -> None:
    done = run("-c", "import pymetis", environment=bare)
    assert "No module named 'pymetis'" in done.stderr


def test_every_module_of_a_run_imports(bare: dict[str, str]) -> None:
    names = ("cli", "start", "session", "connect", "build", "trainer", "partition.prepare", "data", "codec.cpu")
    done = run("-c", "".join(f"import sylvie.{name}\n" for name in names) + "import analysis.device_check", environment=bare)
    assert done.returncode == 0, done.stderr[-2000:]


def test_trains_on_a_partition_made_elsewhere(bare: dict[str, str], tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    train = ("-m", "sylvie", "quickstart", *GRAPH, "--cache-dir", cache, "--epochs", "2", "--hidden", "8", "--trace")
    refused = run(*train, "--run-dir", str(tmp_path / "refused"), environment=bare)
    assert refused.returncode == 2
    assert "needs pymetis" in refused.stderr.splitlines()[-1]
    made = run("-m", "sylvie.partition.cli", *GRAPH[1:], "--cache-dir", cache)
    assert made.returncode == 0, made.stderr[-2000:]
    done = run(*train, "--run-dir", str(tmp_path / "run"), environment=bare)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "run" / "model.safetensors").is_file()
