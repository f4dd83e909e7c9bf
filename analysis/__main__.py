"""`python -m analysis [--list | STUDY [--quick]]`: run a study, or say which there are."""

import argparse
import difflib
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from analysis.studies import Study, all_studies


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, not the whole usage."""
        self.exit(2, f"analysis: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m analysis", description="Runs one of the project's studies.", allow_abbrev=False
    )
    parser.add_argument(
        "study", nargs="?", metavar="STUDY", help="the study to run; without one they are listed"
    )
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument(
        "--quick", action="store_true", help="the smallest settings that still show the effect"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where results go, and are resumed from (runs/studies/STUDY[-quick])",
    )
    return parser


def _find(name: str, studies: Mapping[str, Study]) -> Study:
    if name in studies:
        return studies[name]
    near = difflib.get_close_matches(name, studies, n=3, cutoff=0.4) or list(studies)
    raise ValueError(f"unknown study {name!r}: the nearest are {', '.join(near)} (--list shows all)")


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, then list or run; returns the exit code (0 done, 2 bad arguments, 1 a failed run)."""
    parser = _parser()
    options = parser.parse_args(argv)
    studies = all_studies()
    if options.list or options.study is None:
        if options.study or options.quick or options.out:
            parser.error("--list goes alone, and other options need a STUDY: see --help")
        width = max(map(len, studies))
        print("\n".join(f"{study.name:<{width}}  {study.title}" for study in studies.values()))
        return 0
    signal.signal(signal.SIGTERM, _leave)  # so that a stopped study takes its runs along
    try:
        study = _find(options.study, studies)
        out = options.out or Path("runs/studies") / f"{study.name}{'-quick' if options.quick else ''}"
        out.mkdir(parents=True, exist_ok=True)
        study.run(options.quick, out)
    except ValueError as error:
        print(f"analysis: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("analysis: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except (OSError, RuntimeError) as error:
        print(f"analysis: {error}", file=sys.stderr)
        return 1
    print(f"{study.name}: results in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
