"""The emulated network: its speed, its counters, and that nothing of it stays behind, whatever happens."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analysis.netlab import NetLab, namespaces, why_unavailable
from analysis.netlab.__main__ import main
from analysis.netlab.ranks import rank_environment, share_cores
from analysis.netlab.rate import parse_rate

ROOT = Path(__file__).resolve().parents[2]
# Host 0 receives what every other host sends: PAYLOAD bytes each.
TRANSFER = """
import os, socket, sys
size, rank, world = int(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    got = 0
    with socket.create_server(address) as server:
        for _ in range(world - 1):
            connection, _peer = server.accept()
            while data := connection.recv(1 << 16):
                got += len(data)
    print("got", got)
    sys.exit(got != size * (world - 1))
import time
for attempt in range(200):
    try:
        connection = socket.create_connection(address)
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
connection.sendall(bytes(size))
connection.close()
"""


def _why_not() -> str | None:
    if (reason := why_unavailable()) is not None:
        return reason
    # Root in a container may still lack the right to make namespaces, and a kernel may lack tbf.
    words = "unshare --net --mount tc qdisc add dev lo root tbf rate 1gbit burst 128kb latency 100ms"
    refused = subprocess.run(words.split(), capture_output=True, text=True, check=False)
    return (
        None if refused.returncode == 0 else f"this kernel refuses an emulated link: {refused.stderr.strip()}"
    )


@pytest.fixture(scope="module")
def can_build() -> None:
    if (reason := _why_not()) is not None:
        pytest.skip(reason)


def _cli(*words: str) -> list[str]:
    return [sys.executable, "-m", "analysis.netlab", *words]


def _spaces(text: str) -> list[str]:
    return [name for name in os.listdir("/run/netns") if text in name]


def _wait_until(done: "object", limit_s: float = 8.0) -> None:
    assert callable(done)
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def _gone(pid: int) -> bool:
    return namespaces._start_time(pid) is None


@pytest.mark.netlab
def test_goodput_is_the_rate_and_counters_see_the_transfer(can_build: None) -> None:
    size = 8_000_000
    words = _cli(
        "--hosts", "3", "--rate", "200mbit", "--json", "--", sys.executable, "-c", TRANSFER, str(size)
    )
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert f"got {2 * size}" in done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) == {"rate", "goodput_bytes_per_s", "rc", "hosts"}
    assert (result["rate"], result["rc"]) == ("200mbit", 0)
    assert 0.90 * 25e6 < result["goodput_bytes_per_s"] < 1.02 * 25e6
    assert [set(host) for host in result["hosts"]] == [
        {"host", "tx_bytes", "rx_bytes", "tx_packets", "rx_packets"}
    ] * 3
    receiver, *senders = result["hosts"]
    assert receiver["rx_bytes"] - 66 * receiver["rx_packets"] == pytest.approx(2 * size, rel=0.02)
    for sender in senders:
        assert sender["tx_bytes"] - 66 * sender["tx_packets"] == pytest.approx(size, rel=0.02)
        assert sender["rx_bytes"] < 0.1 * size


@pytest.mark.netlab
def test_link_takes_the_time_its_rate_says(can_build: None) -> None:
    with NetLab(2, "40mbit") as lab:
        lab.goodput_bytes_per_s = 1.0  # leaves out the probe
        start = time.monotonic()
        result = lab.run([sys.executable, "-c", TRANSFER, "5000000"])
        took = time.monotonic() - start
        again = lab.run([sys.executable, "-c", TRANSFER, "0"])
    assert result.rc == again.rc == 0
    assert took > 0.9 * 5e6 / 5e6
    assert again.hosts[0].rx_bytes < 10_000  # a second run counts itself alone


@pytest.mark.netlab
def test_environment_and_isolation(can_build: None, tmp_path: Path) -> None:
    script = (
        "import os, json, pathlib;"
        "keys = ('RANK','WORLD_SIZE','LOCAL_RANK','LOCAL_WORLD_SIZE','MASTER_ADDR','GLOO_SOCKET_IFNAME');"
        "seen = {k: os.environ[k] for k in keys} | {'net': sorted(os.listdir('/sys/class/net')),"
        " 'cores': sorted(os.sched_getaffinity(0)), 'extra': os.environ['EXTRA'], 'cwd': os.getcwd()};"
        "pathlib.Path(os.environ['RANK']).write_text(json.dumps(seen)); print('hello')"
    )
    log = tmp_path / "log"
    with NetLab(2, "none") as lab, log.open("wb") as stream:
        lab.goodput_bytes_per_s = 1.0
        words = [sys.executable, "-c", script]
        result = lab.run(words, env={"EXTRA": "7"}, cwd=tmp_path, log=stream, prefix=True)
    assert result.rc == 0
    assert sorted(log.read_text().splitlines()) == ["[host 0] hello", "[host 1] hello"]
    seen = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert [host["RANK"] for host in seen] == ["0", "1"]
    cores = sorted(os.sched_getaffinity(0))
    for host in seen:
        assert (host["WORLD_SIZE"], host["LOCAL_RANK"], host["LOCAL_WORLD_SIZE"]) == ("2", "0", "1")
        assert (host["MASTER_ADDR"], host["GLOO_SOCKET_IFNAME"]) == (namespaces.address(0), "eth0")
        assert host["net"] == ["eth0", "lo"]
        assert host["extra"] == "7"
        assert host["cwd"] == str(tmp_path)
        assert len(host["cores"]) == max(1, len(cores) // 2)
    if len(cores) > 1:
        assert not set(seen[0]["cores"]) & set(seen[1]["cores"])


@pytest.mark.netlab
def test_a_killed_rank_ends_the_others_after_the_grace(can_build: None) -> None:
    stubborn = "trap '' TERM; [ $RANK = 1 ] && kill -9 $$; while :; do sleep 0.2; done"
    with NetLab(2, "none") as lab:
        lab.goodput_bytes_per_s = 1.0
        start = time.monotonic()
        result = lab.run(["sh", "-c", stubborn], grace_s=0.3)
        took = time.monotonic() - start
        assert not any(namespaces.pids(name) for name in _spaces(lab.prefix))
        after = lab.run(["true"])
    assert result.rc == 128 + signal.SIGKILL
    assert took > 0.3
    assert after.rc == 0  # the lab is still good
    assert not _spaces(lab.prefix)


@pytest.mark.netlab
def test_timeout_and_first_failure_give_the_exit_code(can_build: None) -> None:
    with NetLab(2, "none") as lab:
        lab.goodput_bytes_per_s = 1.0
        assert lab.run(["sleep", "60"], timeout_s=0.2).rc == 124
        assert lab.run(["sh", "-c", "[ $RANK = 0 ] && sleep 0.5 && exit 3; exit 5"]).rc == 5
        # A daemon of COMMAND does not outlive it.
        assert lab.run(["sh", "-c", "setsid sleep 60 & exit 0"]).rc == 0
        assert not any(namespaces.pids(name) for name in _spaces(lab.prefix))


@pytest.mark.netlab
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_lab_leaves_nothing(can_build: None, tmp_path: Path, number: signal.Signals) -> None:
    command = ["sh", "-c", f"echo $$ > {tmp_path}/pid-$RANK; sleep 60"]
    lab = subprocess.Popen(
        _cli("--hosts", "2", "--rate", "none", "--", *command), cwd=ROOT, stderr=subprocess.PIPE
    )
    pid_files = [tmp_path / f"pid-{rank}" for rank in range(2)]
    _wait_until(lambda: all(file.exists() and file.read_text().strip() for file in pid_files))
    assert len(_spaces(f"-{lab.pid}-")) == 3
    lab.send_signal(number)
    lab.communicate(timeout=10)
    assert lab.returncode == 128 + number
    assert not _spaces(f"-{lab.pid}-")
    assert all(_gone(int(file.read_text())) for file in pid_files)


@pytest.mark.netlab
def test_what_a_killed_lab_leaves_goes_with_the_next_one(can_build: None, tmp_path: Path) -> None:
    command = [
        "sh",
        "-c",
        f"sleep 61 & echo $! > {tmp_path}/child-$RANK; echo $$ > {tmp_path}/pid-$RANK; wait",
    ]
    lab = subprocess.Popen(_cli("--hosts", "2", "--rate", "none", "--", *command), cwd=ROOT)
    pid_files = [tmp_path / f"pid-{rank}" for rank in range(2)]
    _wait_until(lambda: all(file.exists() and file.read_text().strip() for file in pid_files))
    lab.kill()
    lab.wait()
    _wait_until(lambda: all(_gone(int(file.read_text())) for file in pid_files))  # ranks die with their lab
    assert len(_spaces(f"-{lab.pid}-")) == 3
    with (
        NetLab(1, "none") as first,
        NetLab(1, "none") as second,
    ):  # and two living ones leave each other alone
        assert not _spaces(f"-{lab.pid}-")
        assert first.run(["true"]).rc == second.run(["true"]).rc == 0
        assert first.run(["true"]).goodput_bytes_per_s is None
    assert all(_gone(int((tmp_path / f"child-{rank}").read_text())) for rank in range(2))
    assert not _spaces(f"-{os.getpid()}-")


@pytest.mark.netlab
def test_a_failure_half_way_leaves_nothing(can_build: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = namespaces.call

    def refuse_host_one(*words: str, stdin: str | None = None) -> str:
        if words[:3] == ("ip", "netns", "add") and words[3].endswith("-h1"):
            words = ("ip", "netns", "add", "no/such/name")
        return real(*words, stdin=stdin)

    monkeypatch.setattr(namespaces, "call", refuse_host_one)
    lab = NetLab(2, "none")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="ip netns add"), lab:
        pytest.fail("the lab must not open")
    assert not _spaces(lab.prefix)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.netlab
def test_a_body_that_raises_leaves_nothing(can_build: None) -> None:
    with pytest.raises(ZeroDivisionError), NetLab(2, "none") as lab:
        assert len(_spaces(lab.prefix)) == 3
        raise ZeroDivisionError
    assert not _spaces(lab.prefix)


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code: object = main(words)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hosts", "2", "--rate", "fast", "--", "true"], "200mbit"),
        (["--hosts", "2", "--rate", "200", "--", "true"], "200mbit"),
        (["--hosts", "2", "--rate", "0mbit", "--", "true"], "10mbit"),
        (["--hosts", "0", "--rate", "none", "--", "true"], "1 to 250"),
        (["--hosts", "two", "--rate", "none", "--", "true"], "two"),
        (["--hosts", "2", "--rate", "none"], "COMMAND"),
        (["--hosts", "2", "--rate", "none", "--"], "COMMAND"),
        (["--hosts", "2", "--rate", "none", "true"], "true"),
        (["--hosts", "2", "--rate", "none", "--", "no-such-program"], "no-such-program"),
        (["--hosts", "2", "--rate", "none", "--timeout", "0", "--", "true"], "timeout"),
        (["--hosts", "2", "--rate", "none", "--cores", "all", "--", "true"], "cores"),
    ],
)
def test_bad_arguments(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in _refused(words, capsys)


def test_without_root_or_tools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "2", "--rate", "none", "--", "true"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in _refused(words, capsys)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    real = shutil.which
    for tool in ("ip", "tc"):
        monkeypatch.setattr(shutil, "which", lambda name, tool=tool: None if name == tool else real(name))
        assert "iproute2" in _refused(words, capsys)


def test_rate_and_burst() -> None:
    assert parse_rate("200mbit").burst_bytes == 128 * 1024
    assert parse_rate("10gbit").burst_bytes == 5_000_000
    assert parse_rate("1.5GBIT").bits_per_s == 1.5e9
    assert parse_rate("none").qdisc() == []
    assert parse_rate("200mbit").qdisc() == [
        "tbf",
        "rate",
        "200000000bit",
        "burst",
        "131072",
        "latency",
        "100ms",
    ]


def test_cores_are_shared_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 4, 5, 6, 9})
    assert share_cores(2, True) == (["3,4", "5,6"], 2)
    assert share_cores(7, True) == (["3", "4", "5", "6", "9", "3", "4"], 1)
    assert share_cores(2, False) == (["", ""], 2)
    assert rank_environment(1, 2, 29501, 2)["OMP_NUM_THREADS"] == "2"
