"""``sylvie-partition``: the offline stage alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sylvie.data import find_source, registered_names
from sylvie.partition.manifest import Manifest
from sylvie.partition.prepare import PreparedPartition, default_cache_dir, prepare


def main(argv: Sequence[str] | None = None) -> int:
    """Partition a dataset and say how well it was cut; 0 done, 2 bad arguments or input with one line on
    stderr.
    """
    options = _parser().parse_args(argv)
    try:
        prepared = _run(options)
    except ValueError as error:
        print(f"sylvie-partition: {error}", file=sys.stderr)
        return 2
    for line in summary(prepared.manifest):
        print(line)
    print(f"{'found in' if prepared.cached else 'kept in'} {prepared.path}")
    return 0


def summary(manifest: Manifest) -> list[str]:
    """The statistics of a partition as lines for a terminal."""
    stats = manifest.statistics
    lines = [f"{manifest.dataset}: {len(stats.ranks)} parts by {manifest.origin.method}"]
    for rank, part in enumerate(stats.ranks):
        lines.append(
            f"  rank {rank}: {part.inner} inner, {part.halo} halo, {part.edges} edges, "
            f"{part.send_rows} rows to send, {part.train} training nodes"
        )
    lines.append(f"balance {stats.balance:.3f} (nodes), {stats.edge_balance:.3f} (edges)")
    lines.append(f"boundary share {stats.boundary_share:.3f} ({stats.pool_nodes} nodes)")
    lines.append(f"volume {stats.volume} rows an exchange, {stats.cut_edges} cut edges")
    return lines


def _run(options: argparse.Namespace) -> PreparedPartition:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    seed = options.seed if options.seed is not None else 0
    source = find_source(options.dataset, data_root=options.data_root, seed=seed)
    if options.input_projection is not None:
        source = source.projected(options.input_projection, seed)
    elif options.seed is not None and options.partition is not None and source.files:
        raise ValueError("--seed does nothing with --partition FILE and no --input-projection; leave it out")
    return prepare(
        lambda: source.load(say),
        parts=options.parts,
        seed=seed,
        assignment_file=options.partition,
        cache_dir=options.cache_dir,
        identity=source.identity(),
        out=options.out,
        report=say,
    )


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage text in front."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="sylvie-partition",
        description="Cut a graph into one partition a rank, and keep it for training runs.",
    )
    parser.add_argument("dataset", help=f"{', '.join(registered_names())}, an .npz file or a dataset folder")
    parser.add_argument("--parts", type=int, default=2, help="number of parts (2)")
    parser.add_argument(
        "--data-root", type=Path, help="folder of the datasets ($SYLVIE_DATA or ~/.cache/sylvie/data)"
    )
    parser.add_argument(
        "--partition", type=Path, metavar="FILE", help="a ready assignment, one id a line (METIS)"
    )
    parser.add_argument("--seed", type=int, help="seed of METIS, generator and projection (0)")
    parser.add_argument(
        "--input-projection", type=int, metavar="K", help="project the features to K columns (off)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write (one in the cache)")
    parser.add_argument(
        "--cache-dir", type=Path, default=default_cache_dir(), help="folder of the cache (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
