"""sylvie-train: read the configuration, launch the ranks, or be one of them."""

from __future__ import annotations

import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sylvie.config import Config, resolve
from sylvie.options import OneLineParser, add_options, read_config_file
from sylvie.recipes import RECIPES, find_recipe

if TYPE_CHECKING:  # torch takes seconds to load: --help and a bad argument need none of it
    from sylvie.launch import World
    from sylvie.start import Begun

_DESCRIPTION = "Train a graph neural network on a whole graph split over several processes."
_BEGUN = "SYLVIE_BEGUN"


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
    parser.add_argument("recipe", nargs="?", default="quickstart", help="a named run; --list shows them (quickstart)")
    parser.add_argument("--list", action="store_true", help="print the recipes and stop")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="file with the same names")
    add_options(parser)
    given = vars(parser.parse_args(words))
    recipe, listed, file = given.pop("recipe"), given.pop("list"), given.pop("config")
    if listed:
        _print_recipes()
        return 0
    named = find_recipe(recipe).config()
    given = (read_config_file(file) if file else {}) | given
    return _run(resolve(named, given), recipe, words, "parts" in given)


def _print_recipes() -> None:
    for recipe in RECIPES.values():
        marks = "fetched" if recipe.fetched else "       "
        print(f"{recipe.name:24} {marks}  {recipe.summary}{'  (ours)' if recipe.ours else ''}")


def _run(config: Config, recipe: str, words: list[str], parts_given: bool) -> int:
    from sylvie.extractor import resolve_thresholds
    from sylvie.launch import LAUNCHED, World, die_with_parent
    from sylvie.placement import count_gpus, place
    from sylvie.start import Begun
    from sylvie_trace.export.wandb_ import check_mode

    check_mode(config.wandb)
    resolve_thresholds(config.mask_thresholds)
    if ":" in config.model and "" not in sys.path:  # as ``python -m`` has it: the user's model lies where they stand
        sys.path.insert(0, "")
    world = World.from_environment()
    here = World(rank=0, world_size=config.parts, local_rank=0, local_world_size=config.parts)
    place(config.device, config.backend, world or here, count_gpus())  # refuses what cannot work
    started = time.monotonic_ns()
    if world is None:
        return _launch(config, recipe, words, started)
    die_with_parent()
    if parts_given and LAUNCHED not in os.environ and config.parts != world.world_size:
        raise ValueError(f"--parts {config.parts} contradicts WORLD_SIZE {world.world_size}; leave --parts out under torchrun")
    if _BEGUN in os.environ and LAUNCHED in os.environ:
        before = Begun.decode(os.environ[_BEGUN])
        return _rank(config, recipe, world, config.run_dir, before.started_ns, before)
    return _rank(config, recipe, world, config.run_dir, started)


def _launch(config: Config, recipe: str, words: list[str], started_ns: int) -> int:
    """Refuse bad input, do the offline stage, then start the local ranks, or be the only one."""
    from sylvie.console import Phases
    from sylvie.launch import SINGLE, launch_local
    from sylvie.mirror import mirrored
    from sylvie.start import Begun, prepare_offline

    run_dir = _new_run_dir(config, recipe)
    offline_ns, phases = time.monotonic_ns(), Phases()
    try:
        begun = Begun.of(started_ns, prepare_offline(config, config.parts, report=phases), offline_ns)
    except ValueError:
        phases.close(refused=True)
        raise
    phases.close(refused=False)
    with mirrored(config.wandb, run_dir):
        if config.parts == 1:
            return _rank(config, recipe, SINGLE, run_dir, started_ns, begun)
        os.environ[_BEGUN] = begun.encode()
        return launch_local(config.parts, [*words, "--run-dir", str(run_dir)], run_dir)


def _new_run_dir(config: Config, recipe: str) -> Path:
    """The run directory's path, refused when in use or impossible; nothing is made yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    path = config.run_dir if config.run_dir is not None else Path("runs") / f"{stamp}-{recipe}"
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--run-dir {path} is in use; name another or remove it")
    above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"--run-dir {path}: {above} is not a directory that can be written; name another")
    return path


def _rank(config: Config, recipe: str, world: World, run_dir: Path | None, started_ns: int, before: Begun | None = None) -> int:
    """Run one rank to its end; its last error goes to whoever started it."""
    from sylvie.launch import LAUNCHED, discard, join, leave
    from sylvie.mirror import mirrored
    from sylvie.placement import count_gpus, place

    session = None
    try:
        join(world, place(config.device, config.backend, world, count_gpus()).group_backend, config.timeout)
        from sylvie.start import start_session

        session = start_session(config, recipe, world, run_dir, started_ns, before)
        launched = before is not None or LAUNCHED in os.environ  # then the launcher has started the mirror
        with mirrored(config.wandb if world.rank == 0 and not launched else "off", session.run_dir.path):
            session.run()
        leave(world)
    except Exception as error:
        code = end_failed(error, training=session is not None and session.training)
        if code == 2 and session is not None:
            discard(session.run_dir.path)
        return code
    return 0


def end_failed(error: Exception, *, training: bool) -> int:
    """Hand a failed rank's error to whoever started it and end it, at once where it has peers; else returns the exit code.

    A ValueError before training is bad input.
    """
    return _leave_hard(_refuse(str(error)) if isinstance(error, ValueError) and not training else _fail(error))


def _fail(error: BaseException) -> int:
    from sylvie.exchange.flight import ExchangeError
    from sylvie.launch import LAUNCHED, report_error

    text = " ".join(str(error).split())
    lost_peer = isinstance(error, (ExchangeError, TimeoutError)) or "gloo" in text
    told = "" if lost_peer or _said_by_us(error) else traceback.format_exc()
    report_error(f"{told}error: {text or type(error).__name__}")
    if LAUNCHED in os.environ and isinstance(error, (ExchangeError, RuntimeError, TimeoutError)):
        time.sleep(1.0)  # a peer that died is the cause: let the launcher see it first
    return 1


def _said_by_us(error: BaseException) -> bool:
    """Whether this package raised it on purpose: then one line says all; a stranger's error keeps its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    raised_here = bool(frames) and Path(frames[-1].filename).is_relative_to(Path(__file__).parent)
    return raised_here and isinstance(error, (ValueError, ArithmeticError))


def _leave_hard(code: int) -> int:
    """End a failed rank at once: a background collective may be waiting for a peer that will never answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "RANK" in os.environ:
        os._exit(code)
    return code
