"""Adam here against torch's, bit for bit, and what it costs to make one."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sylvie.optimiser import Adam


def _parameters(seed: int) -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(*shape, generator=draw)) for shape in ((5, 3), (3,), (1, 1))]


@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_steps_are_those_of_torch(decay: float) -> None:
    """Thirty steps, one parameter without a gradient every third time, end in the same bits."""
    ours, theirs = _parameters(0), _parameters(0)
    optimisers = Adam(ours, lr=0.01, weight_decay=decay), torch.optim.Adam(theirs, lr=0.01, weight_decay=decay)
    draw = torch.Generator().manual_seed(1)
    for step in range(30):
        optimisers[0].zero_grad()
        optimisers[1].zero_grad()
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gradient = torch.randn(a.shape, generator=draw)
            if i == 1 and step % 3 == 0:
                continue
            a.grad, b.grad = gradient.clone(), gradient.clone()
        for optimiser in optimisers:
            optimiser.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_state_goes_to_another_instance() -> None:
    """A copy continues as the original does; a state of other shapes is refused."""
    first, second = _parameters(0), _parameters(0)
    one, two = Adam(first, lr=0.1), Adam(second, lr=0.1)
    for p in first:
        p.grad = torch.ones_like(p)
    one.step()
    with torch.no_grad():
        for a, b in zip(first, second, strict=True):
            b.copy_(a)
    two.load_state_dict(one.state_dict())
    for p in (*first, *second):
        p.grad = torch.full_like(p, 0.5)
    one.step()
    two.step()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(ValueError, match="shape"):
        two.load_state_dict({**one.state_dict(), "mean.0": torch.zeros(2)})
    with pytest.raises(ValueError, match="tensors"):
        two.load_state_dict({})


def test_no_compiler_is_loaded() -> None:
    """Making and stepping one imports neither torch's compiler nor sympy."""
    program = (
        "import sys, torch; from sylvie.optimiser import Adam; p = torch.nn.Parameter(torch.ones(2)); "
        "a = Adam([p], lr=.1); a.zero_grad(); p.grad = torch.ones(2); a.step(); "
        "print([m for m in ('torch._dynamo', 'sympy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
