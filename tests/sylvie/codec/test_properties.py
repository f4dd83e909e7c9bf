"""Whatever the rows: both CPU codecs agree to the byte, errors stay within a step, and refusals name the same
row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from sylvie.codec import BodyLayout, Codec, NoiseKey, NonFiniteRowError, body_layout, codec_for

WIDTHS = (1, 2, 4, 8)
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Case:
    rows: Tensor
    index: Tensor
    layout: BodyLayout
    key: NoiseKey


def _cases(**floats: object) -> st.SearchStrategy[Case]:
    @st.composite
    def build(draw: st.DrawFn) -> Case:
        dim = draw(st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 127, 130])))
        count, sent = draw(st.integers(1, 5)), draw(st.integers(0, 8))
        elements = st.floats(width=32, **floats)  # type: ignore[arg-type]
        rows = draw(hnp.arrays(np.float32, (count, dim), elements=elements))
        index = draw(st.lists(st.integers(0, count - 1), min_size=sent, max_size=sent))
        nodes = draw(st.lists(st.integers(0, 2**62), min_size=sent, max_size=sent))
        bits = draw(st.lists(st.sampled_from(WIDTHS), min_size=sent, max_size=sent))
        form = draw(st.sampled_from(["fp32", "bf16"]))
        seed, epoch = draw(st.integers(-(2**70), 2**70)), draw(st.integers(0, 2**31))
        key = NoiseKey(seed=seed, epoch=epoch, layer=1, step=0, direction=draw(st.integers(0, 1)), sender=1)
        layout = body_layout(
            torch.tensor(nodes, dtype=torch.int64), torch.tensor(bits, dtype=torch.uint8), dim, form
        )
        return Case(torch.from_numpy(rows), torch.tensor(index, dtype=torch.int64), layout, key)

    return build()


def _run(codec: Codec, case: Case) -> tuple[Tensor, Tensor] | int:
    """Body and restored rows, or the row that was refused."""
    body = torch.zeros(case.layout.nbytes, dtype=torch.uint8)
    restored = torch.zeros(case.layout.rows, case.layout.dim)
    try:
        codec.encode(case.rows, case.index, case.layout, case.key, body)
    except NonFiniteRowError as error:
        return error.row
    codec.decode(body, case.layout, restored)
    return body, restored


def _agree(case: Case) -> tuple[Tensor, Tensor] | int:
    reference, cpu = _run(codec_for("cpu", "reference"), case), _run(codec_for("cpu"), case)
    if isinstance(reference, int) or isinstance(cpu, int):
        assert reference == cpu
        return reference
    assert torch.equal(reference[0], cpu[0])
    assert torch.equal(reference[1].view(torch.int32), cpu[1].view(torch.int32))
    return reference


@QUIET
@given(_cases())
def test_any_bit_patterns(case: Case) -> None:
    """NaN, infinities, denormals and −0 included."""
    outcome = _agree(case)
    chosen = case.rows[case.index]
    if isinstance(outcome, int):
        wide = chosen[outcome].double()
        limit = torch.finfo(torch.float32).max * (0.98 if case.layout.metadata == "bf16" else 1)
        reaches = torch.cat([wide.abs(), (wide.max() - wide.min())[None]])
        assert not bool((reaches < limit).all())
    else:
        assert bool(chosen.isfinite().all()) and bool(outcome[1].isfinite().all())


@QUIET
@given(_cases(min_value=-(2.0**100), max_value=2.0**100, allow_subnormal=False))
def test_errors_stay_within_a_step(case: Case) -> None:
    outcome = _agree(case)
    assert not isinstance(outcome, int)
    rows, restored = case.rows[case.index].double(), outcome[1].double()
    if not rows.shape[0]:
        return
    low, high = rows.amin(1), rows.amax(1)
    span = high - low
    if case.layout.metadata == "bf16":  # the minimum went down by up to 2^−7 of itself, the step up by 2^−7
        span = (span + low.abs() * 2.0**-7 + 2.0**-133) * (1 + 2.0**-7)
    step = span / (2.0 ** case.layout.bits.double() - 1) + 2.0**-133
    rounding = 2.0**-22 * (rows.abs().amax(1) + span)
    assert bool(((restored - rows).abs() <= (step * 1.0001 + rounding)[:, None]).all())


@QUIET
@given(_cases(min_value=-8, max_value=8, allow_subnormal=False))
def test_fp32_minima_are_exact_and_order_is_kept_within_a_step(case: Case) -> None:
    if case.layout.metadata == "bf16" or not case.layout.rows:
        return
    outcome = _agree(case)
    assert not isinstance(outcome, int)
    rows = case.rows[case.index]
    low, at = rows.min(dim=1)
    assert torch.equal(outcome[1].gather(1, at[:, None])[:, 0], low)
    assert torch.equal(outcome[1].amin(1), low)
