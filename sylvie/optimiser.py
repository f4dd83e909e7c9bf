"""Adam (Kingma & Ba 2015, arXiv 1412.6980) by torch's own arithmetic, without torch's compiler.

``torch.optim.Adam`` loads that compiler when it is made: two seconds and 75 MB a rank that a run never uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

_BETAS, _EPS = (0.9, 0.999), 1e-8


class Adam:
    """The same steps, bit for bit, as ``torch.optim.Adam(parameters, lr=…, weight_decay=…)``.

    Moments exist from the start; a parameter without a gradient is left alone, and so are its moments.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float = 0.0) -> None:
        self.lr, self.weight_decay = lr, weight_decay
        self.parameters = list(parameters)
        self._foreach = any(p.is_cuda for p in self.parameters)  # few launches for many small tensors
        self._steps = [torch.zeros((), dtype=torch.float32) for _ in self.parameters]
        self._means = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in self.parameters]
        self._squares = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in self.parameters]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        gradients = [grad for i in moved if (grad := self.parameters[i].grad) is not None]
        adam(
            [self.parameters[i] for i in moved],
            gradients,
            [self._means[i] for i in moved],
            [self._squares[i] for i in moved],
            [],
            [self._steps[i] for i in moved],
            foreach=self._foreach,
            amsgrad=False,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=_EPS,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Steps and moments by name, ready for a file of tensors."""
        lists = {"step": self._steps, "mean": self._means, "square": self._squares}
        return {f"{name}.{i}": value for name, values in lists.items() for i, value in enumerate(values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave; ValueError where the tensors do not fit."""
        mine = self.state_dict()
        if mine.keys() != state.keys():
            raise ValueError(f"the optimiser's state holds {len(state)} tensors; {len(mine)} are needed")
        for name, value in mine.items():
            if value.shape != state[name].shape:
                raise ValueError(f"the optimiser's {name} has shape {tuple(state[name].shape)}, not {tuple(value.shape)}")
            value.copy_(state[name])
