"""``sylvie-partition``: the offline stage alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

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

    source = find_source(options.dataset, data_root=options.data_root, seed=options.seed)
    if options.input_projection is not None:
        source = source.projected(options.input_projection, options.seed)
    return prepare(
        lambda: source.load(say),
        parts=options.parts,
        seed=options.seed,
        assignment_file=options.partition,
        cache_dir=options.cache_dir,
        identity=source.identity(),
        out=options.out,
        report=say,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sylvie-partition",
        description="Cut a graph into one partition a rank, and keep it for training runs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("dataset", help=f"{', '.join(registered_names())}, an .npz file or a dataset folder")
    parser.add_argument("--parts", type=int, default=2, help="number of parts")
    parser.add_argument(
        "--data-root", type=Path, help="folder of the datasets; else $SYLVIE_DATA or ~/.cache/sylvie/data"
    )
    parser.add_argument(
        "--partition", type=Path, metavar="FILE", help="a ready assignment, one part id a line"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of METIS, the generator and the projection")
    parser.add_argument("--input-projection", type=int, metavar="K", help="project the features to K columns")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write; else one in the cache")
    parser.add_argument("--cache-dir", type=Path, default=default_cache_dir(), help="folder of the cache")
    return parser


if __name__ == "__main__":
    sys.exit(main())
