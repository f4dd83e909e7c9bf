"""sylvie-train: read the configuration, launch the ranks, or be one of them."""

from __future__ import annotations

import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from sylvie.config import Config, resolve
from sylvie.options import OneLineParser, add_options, read_config_file
from sylvie.recipes import RECIPES, find_recipe

_DESCRIPTION = "Train a graph neural network on a whole graph split over several processes."


def main(arguments: list[str] | None = None) -> int:
    """Entry point; exit code 0 done, 2 bad arguments or input (one line says what), 1 anything else."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _main(words)
    except ValueError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1


def _refuse(message: str) -> int:
    from sylvie.launch import report_error

    report_error("error: " + " ".join(message.split()))
    return 2


def _main(words: list[str]) -> int:
    parser = OneLineParser(prog="sylvie-train", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("recipe", nargs="?", default="quickstart", help="a named run; --list shows them")
    parser.add_argument("--list", action="store_true", help="print the recipes and stop")
    parser.add_argument("--config", type=Path, help="TOML file with the same names")
    add_options(parser)
    given = vars(parser.parse_args(words))
    recipe, listed, file = given.pop("recipe"), given.pop("list"), given.pop("config")
    if listed:
        _print_recipes()
        return 0
    named = find_recipe(recipe).config()
    config = resolve(named, (read_config_file(file) if file else {}) | given)
    return _run(config, recipe, words, "parts" in given)


def _print_recipes() -> None:
    for recipe in RECIPES.values():
        marks = "fetched" if recipe.fetched else "       "
        print(f"{recipe.name:24} {marks}  {recipe.summary}{'  (ours)' if recipe.ours else ''}")


def _run(config: Config, recipe: str, words: list[str], parts_given: bool) -> int:
    from sylvie.extractor import resolve_thresholds
    from sylvie.launch import SINGLE, World, die_with_parent, launch_local

    resolve_thresholds(config.mask_thresholds)
    _check_device(config)
    world = World.from_environment()
    if world is None:
        started = time.monotonic_ns()
        run_dir = _new_run_dir(config, recipe)
        _prepare(config, config.parts)
        if config.parts == 1:
            return _rank(config, recipe, SINGLE, run_dir, started)
        os.environ["SYLVIE_STARTED_NS"] = str(started)
        return launch_local(config.parts, [*words, "--run-dir", str(run_dir)], run_dir)
    die_with_parent()
    if parts_given and "SYLVIE_LAUNCHED" not in os.environ and config.parts != world.world_size:
        raise ValueError(
            f"--parts {config.parts} contradicts WORLD_SIZE {world.world_size}; leave --parts out under torchrun"
        )
    started = int(os.environ.get("SYLVIE_STARTED_NS", time.monotonic_ns()))
    return _rank(config, recipe, world, config.run_dir, started)


def _check_device(config: Config) -> None:
    import torch

    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this torch sees no CUDA device; use --device cpu")
    if config.backend == "nccl" and not torch.cuda.is_available():
        raise ValueError("--backend nccl needs a CUDA device; use --backend gloo")


def _new_run_dir(config: Config, recipe: str) -> Path:
    """The run directory's path, refused when in use; nothing is made yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    path = config.run_dir if config.run_dir is not None else Path("runs") / f"{stamp}-{recipe}"
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--run-dir {path} is in use; name another or remove it")
    return path


def _rank(config: Config, recipe: str, world: object, run_dir: Path | None, started: int) -> int:
    """Run one rank to its end; its last error goes to whoever started it."""
    from sylvie.launch import World, join, leave

    assert isinstance(world, World)
    session = None
    try:
        join(world, "gloo", config.timeout)
        from sylvie.start import start_session

        session = start_session(config, recipe, world, run_dir, started)
        session.run()
        leave(world)
    except Exception as error:
        refused = isinstance(error, ValueError) and (session is None or not session.training)
        return _leave_hard(_refuse(str(error)) if refused else _fail(error))
    return 0


def _fail(error: BaseException) -> int:
    from sylvie.exchange.flight import ExchangeError
    from sylvie.launch import LAUNCHED, report_error

    report_error(f"error: {' '.join(str(error).split())}", traceback=traceback.format_exc())
    if LAUNCHED in os.environ and isinstance(error, (ExchangeError, RuntimeError, TimeoutError)):
        time.sleep(1.0)  # a peer that died is the cause: let the launcher see it first
    return 1


def _leave_hard(code: int) -> int:
    """End a failed rank at once: a background collective may be waiting for a peer that will never answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "RANK" in os.environ:
        os._exit(code)
    return code


def _prepare(config: Config, parts: int) -> None:
    from sylvie.start import prepare_offline

    prepare_offline(config, parts, report=lambda text: print(text, file=sys.stderr, flush=True))
