"""The studies: one file each, holding one value `STUDY`; a new file is found by itself."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Study:
    """A runnable experiment.

    `run(quick, out)` writes its tables (markdown and JSON) into the directory `out`. It can be stopped and
    started again: what is complete there is not run twice. `quick` takes the smallest settings that still
    show the effect.
    """

    name: str
    title: str
    run: Callable[[bool, Path], None]


def all_studies() -> dict[str, Study]:
    """Every study by name, in the order of their names."""
    studies: dict[str, Study] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
        study = importlib.import_module(f"{__name__}.{info.name}").STUDY
        assert isinstance(study, Study)
        assert study.name not in studies, study.name
        studies[study.name] = study
    return dict(sorted(studies.items()))
