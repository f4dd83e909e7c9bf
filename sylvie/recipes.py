"""Recipes: named complete runs (§12). Those marked ``fetched`` need data that the user brings to --data-root.

Layers × width, epochs and dropout are the paper's where it gives them; everything marked ``ours`` is this project's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sylvie.config import Config, nearest


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named run: what it sets, whether its data must be fetched, and whether the numbers are the paper's."""

    name: str
    summary: str
    options: dict[str, Any]
    fetched: bool = False
    ours: bool = False

    def config(self) -> Config:
        """The recipe as a configuration."""
        return Config(**self.options)


_DATASETS = {"reddit": "reddit", "yelp": "yelp", "products": "ogbn-products", "amazon": "amazon"}
_PAPER = {  # (layers, hidden) on Reddit, Yelp, products, Amazon; None where the paper has no run
    "graphsage": ((4, 256), (4, 512), (3, 128), (4, 128)),
    "gcn": ((4, 256), (4, 512), (3, 128), (4, 128)),
    "gcnii": ((8, 256), (8, 512), (8, 128), (6, 128)),
    "gat": (None, None, (3, 256), None),
    "jknet": ((8, 128), None, None, None),
}
_EPOCHS_DROPOUT = ((2000, 0.5), (2000, 0.1), (500, 0.3), (2000, 0.1))
_OURS = {
    "gat": ((3, 256), (3, 256), None, (3, 128)),
    "dagnn": ((8, 128), None, (8, 128), (8, 128)),
    "sgc": ((8, 128), (8, 128), (8, 128), (8, 128)),
}


def _fetched() -> list[Recipe]:
    recipes = []
    for table, ours in ((_PAPER, False), (_OURS, True)):
        for model, shapes in table.items():
            for short, shape, (epochs, dropout) in zip(_DATASETS, shapes, _EPOCHS_DROPOUT, strict=True):
                if shape is None:
                    continue
                epochs = 800 if model == "jknet" else epochs
                options = {
                    "dataset": _DATASETS[short],
                    "model": model,
                    "layers": shape[0],
                    "hidden": shape[1],
                    "epochs": epochs,
                    "dropout": dropout,
                }
                summary = f"{model} {shape[0]}×{shape[1]} on {_DATASETS[short]}, {epochs} epochs, dropout {dropout}"
                recipes.append(Recipe(name=f"{model}-{short}", summary=summary, options=options, fetched=True, ours=ours))
    return recipes


_LOCAL = [
    Recipe(
        name="quickstart",
        summary="the built-in generator, GraphSAGE 3×64, 2 local ranks, under a minute",
        options={"dataset": "generator"},
        ours=True,
    ),
    Recipe(
        name="graphsage-papers100m",
        summary="graphsage 3×128 on ogbn-papers100M",
        options={"dataset": "ogbn-papers100m", "layers": 3, "hidden": 128, "epochs": 100, "dropout": 0.3},
        fetched=True,
        ours=True,
    ),
    *(
        Recipe(
            name=f"{model}-{data}",
            summary=f"{model} 2×64 on {data}",
            options={
                "dataset": data,
                "model": model,
                "layers": 2,
                "hidden": 64,
                "dropout": 0.5,
                "epochs": 200,
                "weight_decay": 5e-4,
            },
            fetched=True,
            ours=True,
        )
        for data in ("cora", "citeseer", "pubmed")
        for model in ("graphsage", "gcn")
    ),
]

RECIPES = {recipe.name: recipe for recipe in (*_LOCAL, *_fetched())}


def find_recipe(name: str) -> Recipe:
    """The recipe of this name; ValueError with the nearest known ones."""
    if name.endswith(".npz"):
        raise ValueError(f"recipe {name!r} is a file; write --dataset {name}")
    if name not in RECIPES:
        raise ValueError(f"recipe {name!r} is unknown{nearest(name, tuple(RECIPES))}")
    return RECIPES[name]
