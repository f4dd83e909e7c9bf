"""A graph made on the spot: power-law degrees, planted classes, and features that need the neighbourhood.

Every node has a hidden class. Edges are drawn by a degree-corrected block model: both ends in proportion to
a Pareto weight, the second end in the first one's class with probability ``homophily``. A node's own
features are its class centre buried in noise, so one node says little about its class, while the mean over
its neighbours says much.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from sylvie.data.arrays import Array, Report, log_notice, sorted_unique
from sylvie.data.checks import build_graph
from sylvie.data.graph import GraphData

_HOMOPHILY = 0.5
_PARETO_SHAPE = 1.6  # tail exponent 2.6, inside the usual 2 to 3 of real graphs
_LARGEST_WEIGHT_SHARE = 0.02  # one hub takes at most this share of all edge ends
_SIGNAL = 0.14  # length of a class centre's component, against noise 1


@dataclass(frozen=True, kw_only=True)
class GeneratorSettings:
    """Size of a generated graph; ``degree`` is the mean number of in-edges."""

    nodes: int = 8000
    degree: int = 20
    classes: int = 8
    features: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError on a size that makes no graph."""
        for field, low in (("nodes", 30), ("degree", 1), ("classes", 2), ("features", 1), ("seed", 0)):
            value = getattr(self, field)
            if value < low:
                raise ValueError(f"generator: {field}={value} is too small; at least {low} is needed")
        if self.classes * 3 > self.nodes or self.degree >= self.nodes // 2:
            raise ValueError(
                f"generator: nodes={self.nodes} is too small for classes={self.classes}, degree={self.degree}"
            )

    def __str__(self) -> str:
        """The settings as ``--dataset`` takes them."""
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def parse_settings(text: str, seed: int) -> GeneratorSettings:
    """Settings from ``KEY=VALUE,…`` (empty = all defaults); ``seed`` holds unless the text has one."""
    known = {field.name for field in fields(GeneratorSettings)}
    values: dict[str, int] = {"seed": seed}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        if key not in known:
            raise ValueError(f"generator: unknown setting {key!r}; known are {', '.join(sorted(known))}")
        try:
            values[key] = int(value)
        except ValueError:
            raise ValueError(f"generator: {key}={value!r} is not a whole number") from None
    return GeneratorSettings(**values)


def generate(
    settings: GeneratorSettings, *, name: str = "generator", report: Report = log_notice
) -> GraphData:
    """Draw the graph; the same settings give the same graph."""
    rng = np.random.default_rng(settings.seed)
    n, k = settings.nodes, settings.classes
    classes = rng.permutation(np.arange(n) % k)
    src, dst = _draw_edges(rng, settings, classes)
    centres = (
        rng.standard_normal((k, settings.features)) * _SIGNAL * np.sqrt(max(1.0, 64 / settings.features))
    )
    features = centres[classes] + rng.standard_normal((n, settings.features))
    order = rng.permutation(n)
    masks = np.zeros((3, n), dtype=np.bool_)
    masks[0, order[: n * 6 // 10]] = True
    masks[1, order[n * 6 // 10 : n * 8 // 10]] = True
    masks[2, order[n * 8 // 10 :]] = True
    return build_graph(
        name=name,
        src=src,
        dst=dst,
        features=features,
        labels=classes,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        num_classes=k,
        report=report,
    )


def _draw_edges(rng: np.random.Generator, settings: GeneratorSettings, classes: Array) -> tuple[Array, Array]:
    """About nodes·degree/2 undirected edges without loops, both directions, sorted by both ends."""
    n, k = settings.nodes, settings.classes
    weight = 1 + rng.pareto(_PARETO_SHAPE, n)
    weight = np.minimum(weight, _LARGEST_WEIGHT_SHARE * weight.sum())
    grouped = np.argsort(
        classes, kind="stable"
    )  # a class is a contiguous stretch, so one cumulative sum serves all
    edges_of = np.cumsum(weight[grouped])
    ends = np.searchsorted(classes[grouped], np.arange(k), side="right")
    upper = edges_of[ends - 1]
    lower = np.concatenate(([0.0], upper[:-1]))
    wanted = n * settings.degree // 2
    keys = np.empty(0, dtype=np.int64)
    for _ in range(20):  # duplicates and loops are thrown away, so a few rounds reach the wanted number
        missing = wanted - keys.size
        if missing <= wanted // 100:
            break
        draws = missing + missing // 4 + 16
        a = grouped[np.minimum(np.searchsorted(edges_of, rng.random(draws) * edges_of[-1]), n - 1)]
        inside = rng.random(draws) < _HOMOPHILY
        low = np.where(inside, lower[classes[a]], 0.0)
        high = np.where(inside, upper[classes[a]], edges_of[-1])
        b = grouped[np.minimum(np.searchsorted(edges_of, low + rng.random(draws) * (high - low)), n - 1)]
        pairs = np.minimum(a, b) * n + np.maximum(a, b)
        fresh = sorted_unique(pairs[a != b])
        fresh = fresh[~np.isin(fresh, keys, kind="sort")] if keys.size else fresh
        keys = np.concatenate((keys, rng.permutation(fresh)[:missing]))
    u, v = np.divmod(keys, n)
    both = np.sort(np.concatenate((u * n + v, v * n + u)))
    src, dst = np.divmod(both, n)
    return src, dst
