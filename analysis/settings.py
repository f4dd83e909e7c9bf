"""A setting of sylvie-train, what it gave, and how settings are paired."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Option = str | int | float | bool | None
_DEFAULT_PARTS = 2


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run of sylvie-train.

    label    what the tables call it; settings of one label differ in their seed alone
    options  option name, without dashes, to value: True is `--name`, False `--no-name`, None leaves it out
    recipe   the positional argument; None for the program's own default
    rate     run in an emulated network of one host a rank, with links of this rate; None: local ranks
    session  module:Class that takes the place of sylvie's session, for what sylvie-train cannot do; local ranks only
    """

    label: str
    seed: int
    options: Mapping[str, Option] = field(default_factory=dict)
    recipe: str | None = None
    rate: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        for taken in ("seed", "run-dir"):
            if taken in self.options:
                raise ValueError(f"setting {self.label!r}: option {taken!r} is the driver's own, leave it out")

    @property
    def hosts(self) -> int:
        """Ranks, and so hosts in an emulated network."""
        return int(self.options.get("parts") or _DEFAULT_PARTS)

    @property
    def name(self) -> str:
        """A file name: label, rate, seed, and a hash of all that decides the run."""
        key = json.dumps([self.recipe, self.rate, self.seed, sorted(self.options.items()), self.session])
        words = [self.label, *([self.rate] if self.rate else []), f"s{self.seed}"]
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)).strip("-.")
        return f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def arguments(self, run_dir: Path) -> list[str]:
        """The command line after the program's name."""
        words = [self.recipe] if self.recipe else []
        for name, value in {**self.options, "seed": self.seed}.items():
            if value is True or value is False:
                words.append(f"--{name}" if value else f"--no-{name}")
            elif value is not None:
                words += [f"--{name}", str(value)]
        return [*words, "--run-dir", str(run_dir)]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a setting gave: the report of its run, and of its link (None: local ranks, or a failed run).

    `error` is one line when the run failed; there is no report then. `reused`: it was complete before.
    """

    setting: Setting
    run_dir: Path
    report: Mapping[str, Any] | None
    link: Mapping[str, Any] | None = None
    error: str | None = None
    reused: bool = False


def paired(variants: Mapping[str, Mapping[str, Option]], seeds: Iterable[int], **common: Any) -> list[Setting]:
    """Every variant (label to options) with every seed; the seed changes slowest.

    So the variants that are compared run close together, and a drift of the machine meets all of them.
    """
    return [Setting(label=label, seed=seed, options=options, **common) for seed in seeds for label, options in variants.items()]
