"""The network itself: namespaces, veth pairs, a bridge, token buckets, counters.

    host 0 [eth0] --veth-- [p0]  bridge   [p1] --veth-- [eth0] host 1
           tbf              tbf  (own      tbf           tbf
                                 namespace)

Every interface is born inside a namespace of the lab, so nothing of the machine's own network is touched. A
namespace is named `sylvielab-PID-START-K-ROLE` after its owner (process id and start time, which together
never repeat until a reboot), so that a later lab can tell a living lab from the leavings of a dead one.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from analysis.netlab.rate import Rate

NETNS_DIR = Path("/run/netns")
_NAME = re.compile(r"sylvielab-(\d+)-([0-9a-f]+)-(\d+)-(br|h\d+)")
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "taskset": "util-linux", "setpriv": "util-linux"}
_COUNTERS = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
_MIN_PAUSE_S = 0.06


@dataclass(frozen=True, kw_only=True)
class HostCounters:
    """What one host's eth0 carried, as counted by the kernel (Ethernet header included)."""

    host: int
    tx_bytes: int
    rx_bytes: int
    tx_packets: int
    rx_packets: int

    def since(self, start: "HostCounters") -> "HostCounters":
        """The difference to an earlier reading of the same host."""
        assert self.host == start.host
        return HostCounters(
            host=self.host, **{name: getattr(self, name) - getattr(start, name) for name in _COUNTERS}
        )

    def as_dict(self) -> dict[str, int]:
        """Field names to values."""
        return asdict(self)


def why_unavailable() -> str | None:
    """One line that says why no lab can be made here, or None."""
    if os.geteuid() != 0:
        return "an emulated network needs root, because it is made of network namespaces: run this as root"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"an emulated network needs the program {tool!r}: install the Debian package {package}"
    return None


def address(host: int) -> str:
    """A host's IPv4 address on the lab's /16."""
    return f"10.77.{host // 250}.{host % 250 + 1}"


def call(*words: str, stdin: str | None = None) -> str:
    """Run one system program and return its stdout; RuntimeError with its first error line if it fails."""
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise RuntimeError(f"`{' '.join(words)}` failed: {reason}")
    return done.stdout


def _start_time(pid: int) -> str | None:
    """A process's start time in clock ticks since boot, in hex; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before ")" may hold blanks
    return None if fields[0] in "ZX" else f"{int(fields[19]):x}"


def own_prefix(k: int) -> str:
    """The name prefix of this process's k-th lab."""
    return f"sylvielab-{os.getpid()}-{_start_time(os.getpid())}-{k}-"


def create(prefix: str, hosts: int, rate: Rate) -> tuple[str, ...]:
    """Make the bridge and `hosts` shaped hosts; returns the hosts' namespaces.

    Raises RuntimeError half-way if the kernel refuses something; `remove(prefix)` clears what there is by
    then.
    """
    bridge = f"{prefix}br"
    names = tuple(f"{prefix}h{host}" for host in range(hosts))
    for name in (bridge, *names):
        call("ip", "netns", "add", name)
        _disable_ipv6(name)
    # Without multicast snooping and IPv6 the bridge says nothing of its own: the counters see COMMAND alone.
    call("ip", "-n", bridge, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
    call("ip", "-n", bridge, "link", "set", "br0", "up")
    for host, name in enumerate(names):
        port = f"p{host}"
        call("ip", "-n", bridge, "-batch", "-", stdin=(
            f"link add {port} type veth peer name eth0 netns {name}\n"
            f"link set {port} master br0\n"
            f"link set {port} up\n"
        ))  # fmt: skip
        call("ip", "-n", name, "-batch", "-", stdin=(
            f"link set lo up\naddr add {address(host)}/16 dev eth0\nlink set eth0 up\n"
        ))  # fmt: skip
        for namespace, device in ((name, "eth0"), (bridge, port)):
            if words := rate.qdisc():
                call("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *words)
    return names


def _disable_ipv6(name: str) -> None:
    """Keep the kernel's own neighbour and router messages off the links (a kernel without IPv6 has none)."""
    script = (
        "for d in all default; do f=/proc/sys/net/ipv6/conf/$d/disable_ipv6; [ ! -e $f ] || echo 1 > $f; done"
    )
    call("ip", "netns", "exec", name, "sh", "-c", script)


def read_counters(names: Iterable[str]) -> tuple[HostCounters, ...]:
    """eth0's counters of every host, now."""
    paths = [f"/sys/class/net/eth0/statistics/{counter}" for counter in _COUNTERS]
    readings = []
    for host, name in enumerate(names):
        values = map(int, call("ip", "netns", "exec", name, "cat", *paths).split())
        readings.append(HostCounters(host=host, **dict(zip(_COUNTERS, values, strict=True))))
    return tuple(readings)


def settled_counters(names: Iterable[str], segment_s: float) -> tuple[HostCounters, ...]:
    """The counters once the queues are empty: they stand still for three times a segment's time on the link.

    Gives up after ten such pauses (somebody is still talking) and returns the last reading.
    """
    names = tuple(names)
    pause = max(_MIN_PAUSE_S, 3 * segment_s)
    before = read_counters(names)
    for _ in range(10):
        time.sleep(pause)
        now = read_counters(names)
        if now == before:
            break
        before = now
    return before


def pids(name: str) -> list[int]:
    """Processes inside a namespace (empty when it is gone)."""
    try:
        return [int(word) for word in call("ip", "netns", "pids", name).split()]
    except RuntimeError:
        return []


def remove(prefix: str) -> None:
    """Kill what runs in the namespaces that start with `prefix`, and delete them with their interfaces."""
    for name in _existing():
        if name.startswith(prefix):
            _kill_and_delete(name)


def remove_stale() -> None:
    """Remove the namespaces of labs whose owner is dead (it was killed before it could clean up)."""
    for name in _existing():
        match = _NAME.fullmatch(name)
        if match is not None and _start_time(int(match[1])) != match[2]:
            _kill_and_delete(name)


def _existing() -> list[str]:
    return sorted(path.name for path in NETNS_DIR.iterdir()) if NETNS_DIR.is_dir() else []


def _kill_and_delete(name: str) -> None:
    for _ in range(20):  # a dying process may still have started another
        running = pids(name)
        if not running:
            break
        for pid in running:
            signal_pid(pid, signal.SIGKILL)
        time.sleep(0.02)
    # A second lab may be removing the same stale namespace: whoever comes late finds nothing left to delete.
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def signal_pid(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that has just gone is fine."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
