"""`python -m analysis.bench codec|epoch|memory [--json]`: how fast the parts are on this machine."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import NoReturn

# name -> the module whose main(argv) runs it; one that is not there is not offered
BENCHES = {"codec": "analysis.bench_codec", "epoch": "analysis.bench_epoch", "memory": "analysis.bench_memory"}


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaint is one line, not the whole usage; exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Leave with the message."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one bench with the rest of the arguments; returns its exit code, 2 for an unknown name."""
    offered = sorted(name for name, module in BENCHES.items() if importlib.util.find_spec(module))
    parser = OneLineParser(prog="python -m analysis.bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("bench", choices=offered, help="what to measure")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="options of the bench (see BENCH --help)")
    args = parser.parse_args(argv)
    code: int = importlib.import_module(BENCHES[args.bench]).main(args.rest)
    return code


if __name__ == "__main__":
    sys.exit(main())
