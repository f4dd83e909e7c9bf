"""All seven models with the whole of SYLVIE beside vanilla: is one interface enough for shallow, deep and attention models?

Pubmed at the depth of each model's paper; the deep ones and GAT on a generated graph in four random parts, where the halo
counts; and a multi-label graph. A loss of more than half a point deserves a cause: the share of synchronous epochs and the
mean width are beside it, and for the case that counts also 8 bits without staleness and 32 bits with it, which part the loss
from widths from that from late rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.cases import DEBTAGS, PUBMED, Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.link_model import busiest_bytes, link_rate
from analysis.settings import Outcome, Setting
from analysis.studies import Study
from analysis.tables import Column, Table, build_table

#: Depth and dropout as in each model's paper or, for SGC and DAGNN, its number of propagation steps, 8 for all deep ones.
MODELS: Mapping[str, Options] = {
    "graphsage": {"layers": 2},
    "gcn": {"layers": 2},
    "gat": {"layers": 2, "hidden": 8, "heads": 8, "attention-dropout": 0.5},
    "gcnii": {"layers": 8, "alpha": 0.1, "theta": 0.4},
    "dagnn": {"layers": 8},
    "sgc": {"layers": 8, "hidden": None},
    "jknet": {"layers": 8},
}
_DEEP = ("gcnii", "dagnn", "sgc", "jknet", "gat")
VANILLA: Options = {"system": "vanilla"}
#: The default, its rule's clock that of a link on which vanilla spends 92 % of its epoch in exchange: no noise of the machine.
SYLVIE: Options = {"ldr-clock": "modelled"}
_COLUMNS = (
    Column(title="test at best validation, %", path="quality.test_at_best_val", scale=100, versus="difference"),
    Column(title="messages, MB an epoch", path="bytes_per_epoch.main", scale=1e-6, digits=3),
    Column(title="bits a row", path="bits.mean"),
    Column(title="synchronous epochs", path="modes.sync", digits=0),
    Column(title="epoch on local ranks, ms", path="epoch_time_s.median", scale=1e3, digits=1, versus="speedup"),
)


def _run(quick: bool, out: Path) -> None:
    conditions, driver = Conditions(), Driver(out, keep_going=True)
    print("expected: 3 minutes" if quick else "expected: 15 minutes on two idle cores", flush=True)
    parts: list[str | Table] = [__doc__.split("\n\n", 1)[1].strip()] if __doc__ else []
    systems = {"vanilla": VANILLA, "sylvie": SYLVIE}
    if quick:
        case: Options = {"dataset": "generator:nodes=2000", "hidden": 32, "epochs": 30, "parts": 2, "eval-every": 5}
        groups = [("A generated graph, 2 parts", case, MODELS, range(1), systems)]
    else:
        name = "generator:nodes=12000,degree=10,features=64"
        counting: Options = {"dataset": name, "hidden": 64, "lr": 0.01, "dropout": 0.5, "epochs": 80, "eval-every": 5}
        counting |= {"parts": 4, "partition": random_assignment(name, 4, out)}
        groups = [
            ("Pubmed, 2 METIS parts", PUBMED | {"epochs": 40, "eval-every": 5}, MODELS, range(3), systems),
            (
                "A generated graph, 4 random parts (a case that counts)",
                counting,
                {name: MODELS[name] for name in _DEEP},
                range(1),
                systems
                | {
                    "8 bits, sync": {"bits": 8, "schedule": "sync"},
                    "32 bits, async": {"bits": 32, "schedule": "async"},
                },
            ),
            (
                "Debian debtags (multi-label, F1-micro), 2 METIS parts",
                DEBTAGS | {"epochs": 30, "eval-every": 5},
                {name: MODELS[name] for name in ("graphsage", "gat")},
                range(1),
                systems,
            ),
        ]
    for title, case, models, seeds, chosen in groups:
        parts.append(_table(title, _train(driver, case, models, seeds, chosen)))
        title = "Models: the whole of SYLVIE beside vanilla, on all seven"
        write_document(out, "models", title=title, conditions=conditions, parts=parts)


def _train(
    driver: Driver, case: Options, models: Mapping[str, Options], seeds: Sequence[int], systems: Mapping[str, Options]
) -> list[Outcome]:
    """Vanilla first: its bytes give the rate of the rule's clock."""

    def settings(model: str, system: str, axes: Options) -> list[Setting]:
        options = case | models[model] | axes | {"model": model}
        return [Setting(label=f"{model}, {system}", seed=seed, options=options) for seed in seeds]

    outcomes = driver.run([each for model in models for each in settings(model, "vanilla", systems["vanilla"])])
    rates = {
        str(each.setting.options["model"]): link_rate(busiest_bytes(each.run_dir)[0])
        for each in outcomes
        if each.report is not None
    }
    others: list[Setting] = []
    for model, rate in rates.items():
        for system, axes in systems.items():
            if system != "vanilla":
                clock: Options = {"ldr-link-rate": rate} if axes.get("ldr-clock") == "modelled" else {}
                others += settings(model, system, axes | clock)
    return outcomes + driver.run(others)


def _table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Every model's rows, each compared with its own vanilla."""
    models = dict.fromkeys(str(outcome.setting.options["model"]) for outcome in outcomes)
    pieces = [
        build_table(title, [o for o in outcomes if o.setting.options["model"] == model], _COLUMNS, baseline=f"{model}, vanilla")
        for model in models
    ]
    return replace(
        pieces[0],
        baseline="vanilla with the same model",
        rows={label: cells for piece in pieces for label, cells in piece.rows.items()},
        failed=tuple(line for piece in pieces for line in piece.failed),
    )


STUDY = Study(name="models", title="All seven models with the whole of SYLVIE beside vanilla", run=_run)
