"""`python -m analysis.netlab --hosts N --rate 200mbit -- COMMAND`: one rank a host on an emulated network."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from analysis.netlab.lab import LabResult, NetLab, check_command

_DESCRIPTION = """Runs one copy of COMMAND a host. Each host is a network namespace whose only way out, eth0,
is shaped to RATE by a token bucket at both ends; the copies find torchrun's environment (RANK, WORLD_SIZE,
MASTER_ADDR ...). COMMAND's output goes to stderr. Exit code: 0, or that of the copy that failed first (128 +
n for signal n, 124 after --timeout); 2 for bad arguments, without root, or without the tools."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, not the whole usage."""
        self.exit(2, f"netlab: {message}\n")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m analysis.netlab",
        usage="%(prog)s --hosts N --rate RATE [options] -- COMMAND ...",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument("--hosts", type=int, default=2, help="hosts, one rank each (default 2)")
    parser.add_argument("--rate", default="1gbit", help="link rate: 200mbit, 1.5gbit, none (default 1gbit)")
    parser.add_argument("--json", action="store_true", help="the last line on stdout is the result as JSON")
    parser.add_argument(
        "--cores",
        choices=("auto", "none"),
        default="auto",
        help="auto: pin each host to its share of the cores",
    )
    parser.add_argument(
        "--timeout", type=_positive, metavar="S", help="stop COMMAND after S seconds (default: never)"
    )
    parser.add_argument(
        "--grace",
        type=_positive,
        default=90.0,
        metavar="S",
        help="time the others get once a copy has failed (default 90)",
    )
    parser.add_argument("--prefix", action="store_true", help="put [host N] before every line of output")
    return parser


def _print_table(result: LabResult) -> None:
    goodput = result.goodput_bytes_per_s
    print(f"rate {result.rate}, goodput {'not measured' if goodput is None else f'{goodput / 1e6:.1f} MB/s'}")
    print(
        f"{'host':>4} {'sent bytes':>15} {'received bytes':>15} {'sent packets':>13} {'received packets':>17}"
    )
    for host in result.hosts:
        traffic = f"{host.tx_bytes:>15,} {host.rx_bytes:>15,} {host.tx_packets:>13,} {host.rx_packets:>17,}"
        print(f"{host.host:>4} {traffic}")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, build the lab, run, print; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    options, command = _parser().parse_args(words[:split]), words[split + 1 :]
    # A shell starts its background jobs deaf to SIGINT; a lab must be able to end on it all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        check_command(command)
        with NetLab(options.hosts, options.rate, pin_cores=options.cores == "auto") as lab:
            result = lab.run(command, timeout_s=options.timeout, grace_s=options.grace, prefix=options.prefix)
    except ValueError as error:
        print(f"netlab: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"netlab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("netlab: interrupted", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(result.as_dict()), flush=True)
    else:
        _print_table(result)
    return result.rc


if __name__ == "__main__":
    sys.exit(main())
