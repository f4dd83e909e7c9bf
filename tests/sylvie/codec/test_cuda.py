"""The Triton kernels, run by Triton's interpreter on the CPU: their algorithm and bytes. Nothing here needs,
or shows, a GPU."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from sylvie.codec import NoiseKey, NonFiniteRowError, body_layout, codec_for
from sylvie.codec.layout import WIDTHS

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

RoundTrip = Callable[..., tuple[Tensor, Tensor]]
ROOT = Path(__file__).parents[3]
MODULES = ("sylvie.codec.cuda", "sylvie.codec.triton_kernels")


@pytest.fixture(scope="module")
def cuda() -> Iterator[ModuleType]:
    """sylvie.codec.cuda with its kernels interpreted; Triton decides that when they are defined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        for name in MODULES:
            sys.modules.pop(name, None)
        try:
            yield importlib.import_module(MODULES[0])
        finally:
            for name in MODULES:
                sys.modules.pop(name, None)


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
@pytest.mark.parametrize("dim", [1, 3, 17, 64, 127])
def test_bytes_are_the_reference_bytes(
    cuda: ModuleType, key: NoiseKey, round_trip: RoundTrip, dim: int, metadata: str
) -> None:
    g = torch.Generator().manual_seed(dim)
    rows = torch.randn(20, dim, generator=g)
    rows[0], rows[1] = 2.5, -0.0
    rows[2] *= 1e-42
    rows[3] *= 1e37
    bits = torch.tensor(WIDTHS, dtype=torch.uint8)[torch.randint(0, 4, (20,), generator=g)]
    nodes = torch.randint(0, 2**40, (20,), generator=g)
    options = {"node_ids": nodes, "metadata": metadata}
    wanted = round_trip(codec_for("cpu", "reference"), rows, bits, key, **options)
    found = round_trip(cuda.CudaCodec(), rows, bits, key, shift=3, **options)
    assert torch.equal(wanted[0], found[0])
    assert torch.equal(wanted[1].view(torch.int32), found[1].view(torch.int32))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_refused(
    cuda: ModuleType, key: NoiseKey, round_trip: RoundTrip, bad: float
) -> None:
    rows = torch.randn(6, 17)
    rows[4, 3] = rows[5, 0] = bad
    with np.errstate(all="ignore"), pytest.raises(NonFiniteRowError) as caught:
        round_trip(cuda.CudaCodec(), rows, 4, key)
    assert (caught.value.row, caught.value.key) == (4, key)


def test_an_index_outside_the_rows_is_refused(cuda: ModuleType, key: NoiseKey) -> None:
    layout = body_layout(torch.arange(2), torch.full((2,), 4, dtype=torch.uint8), 8)
    body = torch.empty(layout.nbytes, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"index\[1\]"):
        cuda.CudaCodec().encode(torch.randn(5, 8), torch.tensor([0, 5]), layout, key, body)


def test_nothing_to_send(cuda: ModuleType, key: NoiseKey) -> None:
    layout = body_layout(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.uint8), 8)
    none, body = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.uint8)
    codec = cuda.CudaCodec()
    codec.encode(torch.randn(5, 8), none, layout, key, body)
    codec.decode(body, layout, torch.empty(0, 8))
    codec.check()


COMPILE = """
import json
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from sylvie.codec.triton_kernels import decode_kernel, encode_kernel, tile
types = {"source": "*fp32", "out": "*fp32", "body": "*u8", "index": "*i64", "node_ids": "*i64",
         "row_offset": "*i64", "selected": "*i64", "status": "*i64"}
found = []
for kernel in (encode_kernel, decode_kernel):
    for bits in (1, 8):
        constants = tile(127, bits) | {"BF16": False}
        signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in kernel.arg_names}
        compiled = triton.compile(ASTSource(kernel, signature=signature, constexprs=constants),
                                  target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False})
        found.append(compiled.asm["ptx"])
print(json.dumps(found))
"""


def test_compiled_for_a_gpu_nothing_is_contracted_or_flushed(tmp_path: Path) -> None:
    """PTX needs no GPU: IEEE division, no fused multiply-add, denormals kept."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-c", COMPILE]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode and "ptxas" in done.stderr:
        pytest.skip("this triton brings no ptxas")
    assert done.returncode == 0, done.stderr[-2000:]
    assert not re.search(r"\bfma\.|\.ftz|div\.(full|approx)", done.stdout)
    assert "div.rn.f32" in done.stdout
