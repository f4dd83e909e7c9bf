"""What a run ran on: versions, processor, interface, revision — for run.json."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("numpy", "dgl", "numba", "pymetis", "safetensors", "msgspec", "triton", "nvtx", "wandb", "plotly")


def versions() -> dict[str, str | None]:
    """Versions of everything that can change a number; None for what is absent."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda) if torch.version.cuda else None,
        "nccl": _nccl(),
        "driver": _driver(),
        "kernel": platform.release(),
    }
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _nccl() -> str | None:
    if not torch.cuda.is_available():
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def _driver() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    return path.read_text().splitlines()[0].strip() if path.exists() else None


def cpu_name() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def device_facts(device: torch.device) -> dict[str, Any]:
    """This rank's device, processor and share of the cores."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def device_peak_mb(device: torch.device) -> float | None:
    """The most memory that tensors held on a CUDA device so far, in MB (10^6 bytes); None for the host."""
    return torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None


def git_revision() -> str | None:
    """Revision of the code's checkout, with ``+`` when it was changed; None outside one."""
    here = Path(__file__).resolve().parent
    try:
        head = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() or None


def peak_memory_mb() -> float:
    """The process's largest resident set so far, in MB (10^6 bytes)."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
