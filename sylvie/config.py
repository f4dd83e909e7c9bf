"""Config: every option of a run, validated when it is made. Names are those of the command line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from sylvie_trace.decision import CLOCKS, RULES

BITS = ("adaptive", "1", "2", "4", "8", "32")
MASKS = ("degree", "off", "shuffled", "shuffled-rows")
SYSTEM_NAMES = ("sylvie", "vanilla", "pipegcn", "bns-gcn", "sar")
MODEL_NAMES = ("graphsage", "gcn", "gat", "gcnii", "dagnn", "sgc", "jknet")

#: What each baseline does on SYLVIE's axes.
BASELINE_AXES: dict[str, dict[str, Any]] = {
    "vanilla": {"bits": "32", "mask": "off", "schedule": "sync"},
    "sar": {"bits": "32", "mask": "off", "schedule": "sync"},
    "bns-gcn": {"bits": "32", "mask": "off", "schedule": "sync"},
    "pipegcn": {"bits": "32", "mask": "off", "schedule": "async"},
}


def _option(default: Any, help: str, choices: tuple[str, ...] | None = None) -> Any:
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Config:
    """A complete run. ``bits`` … ``schedule`` of a baseline are what the baseline does."""

    dataset: str = _option("generator", "a registered name or the path of an .npz file")
    data_root: Path | None = _option(None, "where datasets lie ($SYLVIE_DATA or ~/.cache/sylvie/data)")
    input_projection: int = _option(0, "replace the features by a fixed random projection to K columns (0: off)")
    model: str = _option("graphsage", f"{', '.join(MODEL_NAMES)}, or package.module:Class")
    layers: int = _option(3, "layers, or propagation steps")
    hidden: int = _option(64, "hidden width")
    dropout: float = _option(0.2, "dropout probability")
    lr: float = _option(0.01, "learning rate of Adam")
    weight_decay: float = _option(0.0, "L2 penalty")
    norm: str = _option("none", "normalisation between layers", ("none", "layer", "batch"))
    heads: int = _option(1, "attention heads, each of --hidden columns (gat)")
    attention_dropout: float = _option(0.0, "dropout probability of attention coefficients (gat)")
    residual: bool = _option(False, "add a layer's input to its output (gat)")
    jk: str = _option("cat", "how layers are joined (jknet)", ("cat", "max"))
    sgc: str = _option("transform", "transform, then propagate; or propagate once", ("transform", "precompute"))
    alpha: float = _option(0.1, "weight of the first layer's rows in every layer (gcnii)")
    theta: float = _option(0.5, "strength of layer l's weight, log(theta/l + 1) (gcnii)")
    epochs: int = _option(60, "epochs")
    seed: int = _option(0, "seed of initialisation, dropout and noise")
    partition_seed: int = _option(0, "seed of the partition, the input projection and the generator's graph")
    eval_every: int = _option(10, "evaluate every N epochs (0: at the end only)")
    parts: int = _option(2, "local ranks; under torchrun its WORLD_SIZE rules")
    partition: Path | None = _option(None, "a ready assignment, one partition id a line (METIS otherwise)")
    system: str = _option("sylvie", "the training system", SYSTEM_NAMES)
    bits: str = _option("adaptive", "width of sent rows", BITS)
    mask: str = _option("degree", "which nodes get more bits (degree with adaptive bits, else off)", MASKS)
    mask_seed: int = _option(0, "seed of a shuffled mask")
    mask_thresholds: str = _option("top10", "top10, quartile, or three rising numbers such as .5,.8,.95")
    importance: str = _option("rank", "rank of the in-degree in the pool, or among distinct degrees", ("rank", "distinct"))
    schedule: str = _option("adaptive", "when rows are used", ("adaptive", "sync", "async"))
    ldr_lambda: float = _option(0.9, "smoothing of the loss")
    ldr_delta: int = _option(5, "epochs that the rule looks back")
    ldr_rule: str = _option("equation", "the rule", RULES)
    ldr_clock: str = _option("wall", "what the rule divides by", CLOCKS)
    ldr_link_rate: str | None = _option(None, "link rate of the modelled clock, such as 200mbit")
    ldr_max_base: str = _option("2", "where the rule stops doubling the base width (the paper: 8)", ("2", "4", "8"))
    metadata: str = _option("bf16", "form of a row's minimum and scale", ("fp32", "bf16"))
    overlap: bool = _option(True, "compute local sums while rows travel")
    cache_input_halo: bool = _option(True, "fetch constant input rows once")
    bns_p: float = _option(0.1, "share of boundary rows sent (bns-gcn)")
    pipegcn_smooth: str = _option("none", "what is smoothed (pipegcn)", ("none", "features", "gradients", "both"))
    pipegcn_momentum: float = _option(0.95, "momentum of the smoothing (pipegcn)")
    trace: bool = _option(False, "write message and span records and NVTX ranges")
    run_dir: Path | None = _option(None, "run directory (runs/<UTC time>-<recipe>)")
    cache_dir: Path | None = _option(None, "where partitions are kept ($XDG_CACHE_HOME or ~/.cache, /sylvie/partitions)")
    wandb: str = _option("off", "mirror to Weights & Biases", ("off", "offline", "online"))
    device: str = _option("auto", "device", ("auto", "cpu", "cuda"))
    backend: str = _option("auto", "collectives", ("auto", "gloo", "nccl"))
    dtype: str = _option("float32", "arithmetic", ("float32", "float64"))
    timeout: float = _option(60.0, "seconds that any wait may take")

    def __post_init__(self) -> None:
        for item in fields(self):
            choices = item.metadata.get("choices")
            value = getattr(self, item.name)
            if choices and value not in choices:
                raise ValueError(f"{flag(item.name)} {value!r} is unknown{nearest(str(value), choices)}")
        self._check_numbers()
        if ":" not in self.model and self.model not in MODEL_NAMES:
            raise ValueError(f"--model {self.model!r} is unknown{nearest(self.model, MODEL_NAMES)}")
        if self.ldr_link_rate is not None:
            parse_rate(self.ldr_link_rate)

    def _check_numbers(self) -> None:
        for name in ("layers", "hidden", "heads", "epochs", "parts", "ldr_delta"):
            if getattr(self, name) < 1:
                raise ValueError(f"{flag(name)} {getattr(self, name)} is too small; use 1 or more")
        for name in ("eval_every", "input_projection", "seed", "partition_seed", "mask_seed", "weight_decay"):
            if not 0 <= getattr(self, name) < 2**31:  # what METIS takes as a seed
                raise ValueError(f"{flag(name)} {getattr(self, name)} is out of range; use 0 to {2**31 - 1}")
        for name in ("lr", "timeout", "theta"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{flag(name)} {getattr(self, name)} must be a positive number")
        for name in ("dropout", "attention_dropout", "alpha", "ldr_lambda", "pipegcn_momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{flag(name)} {getattr(self, name)} is outside [0, 1)")
        if self.ldr_rule == "window" and self.ldr_delta < 2:
            raise ValueError("--ldr-rule window with --ldr-delta 1 can never act; use a delta of at least 2")
        if not 0 < self.bns_p <= 1:
            raise ValueError(f"--bns-p {self.bns_p} is outside (0, 1]")

    @property
    def fixed_bits(self) -> int | None:
        """The base width, or None where the loss decides."""
        return None if self.bits == "adaptive" else int(self.bits)

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-ready, for run.json."""
        return {f.name: str(v) if isinstance(v := getattr(self, f.name), Path) else v for f in fields(self)}


OPTIONS = {item.name: item for item in fields(Config)}

_RULE_OPTIONS = ("ldr_lambda", "ldr_delta", "ldr_rule", "ldr_clock")

# Options that act only under one value of another option: (options, other option, values under which they act).
_ACTS_UNDER: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("heads", "attention_dropout", "residual"), "model", ("gat",)),
    (("alpha", "theta"), "model", ("gcnii",)),
    (("hidden",), "model", ("graphsage", "gcn", "gat", "gcnii", "dagnn", "jknet")),
    (("cache_input_halo",), "model", ("graphsage", "gcn", "gat", "jknet")),
    (("jk",), "model", ("jknet",)),
    (("sgc",), "model", ("sgc",)),
    (("bns_p",), "system", ("bns-gcn",)),
    (("pipegcn_smooth", "pipegcn_momentum"), "system", ("pipegcn",)),
    (
        ("mask_seed", "mask_thresholds", "importance", "metadata", *_RULE_OPTIONS, "ldr_max_base"),
        "system",
        ("sylvie",),
    ),
    (("ldr_link_rate",), "ldr_clock", ("modelled",)),
    (("mask_seed",), "mask", ("shuffled", "shuffled-rows")),
    (("mask_thresholds", "importance"), "mask", ("degree", "shuffled", "shuffled-rows")),
    (("ldr_max_base",), "bits", ("adaptive",)),
    (("metadata",), "bits", ("adaptive", "1", "2", "4", "8")),
    (("pipegcn_momentum",), "pipegcn_smooth", ("features", "gradients", "both")),
)


def resolve(base: Config, given: Mapping[str, Any]) -> Config:
    """``base`` with the options in ``given`` (those the user named), the dependent defaults, and a refusal of what cannot act.

    Raises ValueError for an option that has no effect under the others: nothing is ignored.
    """
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise ValueError(f"option {unknown[0]!r} is unknown{nearest(unknown[0], tuple(OPTIONS))}")
    config = replace(base, **given)
    axes = BASELINE_AXES.get(config.system)
    if axes is not None:
        for name, own in axes.items():
            if name in given and given[name] != own:
                raise ValueError(f"{flag(name)} {given[name]} belongs to --system sylvie; {config.system} always has {own}")
        config = replace(config, **axes)
    elif config.bits != "adaptive" and "mask" not in given:
        config = replace(config, mask="off")
    _refuse_idle(config, given)
    return config


def _refuse_idle(config: Config, given: Mapping[str, Any]) -> None:
    if config.system == "sylvie" and config.bits in ("8", "32") and config.mask != "off":
        raise ValueError(
            f"--mask {config.mask} cannot act at --bits {config.bits}, no row can have more; leave it out or choose other bits"
        )
    for names, other, values in _ACTS_UNDER:
        for name in names:
            own_model = other == "model" and ":" in config.model  # may read every option of a model
            if name in given and getattr(config, other) not in values and not own_model:
                raise ValueError(
                    f"{flag(name)} has no effect with {flag(other)} {getattr(config, other)}; "
                    f"leave it out or use {flag(other)} {' or '.join(values)}"
                )
    if "partition_seed" in given and config.partition and not config.input_projection and not _generated(config):
        raise ValueError("--partition-seed has no effect with --partition FILE and no --input-projection; leave it out")
    if "data_root" in given and (_generated(config) or config.dataset.endswith(".npz")):
        raise ValueError(f"--data-root has no effect with --dataset {config.dataset}; leave it out")
    adaptive = config.bits == "adaptive" or config.schedule == "adaptive"
    for name in (*_RULE_OPTIONS, "ldr_link_rate"):
        if name in given and not adaptive:
            raise ValueError(f"{flag(name)} has no effect with both --bits and --schedule fixed; leave it out")
    if config.ldr_clock == "modelled" and config.ldr_link_rate is None:
        raise ValueError("--ldr-clock modelled needs --ldr-link-rate, such as 200mbit")


def _generated(config: Config) -> bool:
    return config.dataset.partition(":")[0] == "generator"


def flag(name: str) -> str:
    """``mask_seed`` -> ``--mask-seed``."""
    return "--" + name.replace("_", "-")


def nearest(value: str, known: tuple[str, ...]) -> str:
    """``; did you mean X? (known: …)`` for a one-line error."""
    close = difflib.get_close_matches(value, known, n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{hint} (known: {', '.join(known)})"


_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def parse_rate(text: str) -> float:
    """``200mbit`` -> 2.5e7 bytes a second."""
    for unit, factor in _UNITS.items():
        if text.lower().endswith(unit):
            try:
                rate = float(text[: -len(unit)]) * factor / 8
            except ValueError:
                break
            if rate > 0 and math.isfinite(rate):
                return rate
    raise ValueError(f"rate {text!r} is not a number with kbit, mbit or gbit, such as 200mbit")
