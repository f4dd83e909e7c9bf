"""All seven models with the whole of SYLVIE beside vanilla: is one interface enough for shallow, deep and attention models?

Pubmed at the depth of each model's paper; the deep ones and GAT on wordnet in four random parts, where the halo counts; and
a multi-label graph. A loss of more than half a point deserves a cause: the share of synchronous epochs and the mean width
are beside it, and for the case that counts also 1 bit and 8 bits without staleness, which part the loss from widths from
that from late rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.cases import DEBTAGS, PUBMED, WORDNET, Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
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
#: The default with a clock that does not depend on what else the machine does.
SYLVIE: Options = {"ldr-clock": "constant"}
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
        wordnet: Options = {
            "parts": 4,
            "partition": random_assignment("wordnet30_lexname", 4, out),
            "epochs": 60,
            "eval-every": 5,
        }
        groups = [
            ("Pubmed, 2 METIS parts", PUBMED | {"epochs": 100, "eval-every": 5}, MODELS, range(3), systems),
            (
                "Wordnet, 4 random parts (a case that counts)",
                WORDNET | wordnet,
                {name: MODELS[name] for name in _DEEP},
                range(1),
                systems
                | {
                    "1 bit, sync": {"bits": 1, "schedule": "sync"},
                    "8 bits, sync": {"bits": 8, "schedule": "sync"},
                    "32 bits, async": {"bits": 32, "schedule": "async"},
                },
            ),
            (
                "Debian debtags (multi-label, F1-micro), 2 METIS parts",
                DEBTAGS | {"epochs": 60, "eval-every": 5},
                {name: MODELS[name] for name in ("graphsage", "gat")},
                range(1),
                systems,
            ),
        ]
    for title, case, models, seeds, chosen in groups:
        parts += _tables(title, driver.run(_settings(case, models, seeds, chosen)), models)
    write_document(
        out,
        "models",
        title="Models: the whole of SYLVIE beside vanilla, on all seven",
        conditions=conditions,
        parts=parts,
    )


def _settings(
    case: Options, models: Mapping[str, Options], seeds: Sequence[int], systems: Mapping[str, Options]
) -> list[Setting]:
    return [
        Setting(label=f"{model}, {system}", seed=seed, options=case | shape | axes | {"model": model})
        for model, shape in models.items()
        for seed in seeds
        for system, axes in systems.items()
    ]


def _tables(title: str, outcomes: Sequence[Outcome], models: Mapping[str, Options]) -> list[Table]:
    """One table a model: each is compared with its own vanilla."""
    tables = []
    for model in models:
        own = [outcome for outcome in outcomes if outcome.setting.options["model"] == model]
        tables.append(build_table(f"{title}: {model}", own, _COLUMNS, baseline=f"{model}, vanilla"))
    return tables


STUDY = Study(name="models", title="All seven models with the whole of SYLVIE beside vanilla", run=_run)
