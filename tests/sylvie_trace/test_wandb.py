"""The mirror: what it sends, read back from its file; and that nothing it meets harms anybody."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.cli import main
from sylvie_trace.export.tail import follow
from sylvie_trace.export.wandb_ import bit_counts, check_mode, epoch_values, reachable
from sylvie_trace.reader import read_run
from sylvie_trace.schema import Bits, Decision, Epoch, Footer
from sylvie_trace.summary import build
from tests.sylvie_trace.conftest import ROWS, WIDTH, SyntheticRun
from tests.sylvie_trace.wandb_file import read_offline

Make = Callable[..., SyntheticRun]
ROOT = Path(__file__).parents[2]


def command(path: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "sylvie_trace.export.wandb_", str(path), *arguments]


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return kept | changes


def mirrored(path: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(path, *arguments), cwd=ROOT, env=environment(**changes), capture_output=True, text=True, timeout=180
    )


def test_the_series_tables_and_report_are_in_the_file(synthetic: Make) -> None:
    def score(rank: int, record: Any) -> Any:
        if isinstance(record, Epoch) and record.epoch % 5 == 4:
            record.metrics = {"val": 0.5 + record.epoch / 100, "test": None}
        return record

    made = synthetic(world_size=3, epochs=14, change=score)
    done = mirrored(made.path)
    assert done.returncode == 0 and "14 epochs mirrored" in done.stdout, done.stderr
    found = read_offline(made.path)
    assert found.runs == 1 and found.exit_code == 0
    assert found.axes["*"] == "epoch"
    records = read_run(made.path).ranks[0].epochs
    lines = [line for line in found.history if "train/loss" in line]
    assert [line["epoch"] for line in lines] == list(range(14))
    assert [line["train/loss"] for line in lines] == [record.loss for record in records]
    assert [line["train/smoothed_loss"] for line in lines] == [record.smoothed_loss for record in records]
    assert [line.get("train/ldr") for line in lines] == [record.ldr for record in records]
    assert [line["controller/async"] for line in lines] == [int(record.mode == "async") for record in records]
    assert [line["controller/base_bits"] for line in lines] == [record.base_bits for record in records]
    assert [line.get("quality/val") for line in lines if line["epoch"] % 5 == 4] == [0.54, 0.59]
    report = build(read_run(made.path))
    assert [line["epoch"] for line in lines if line["controller/forced_sync"]] == report.modes.forced_sync_epochs
    first = lines[0]
    assert first["bits_rank0/histogram.values"] == [2 * ROWS, 0, 0, 0, 0, 0]
    assert first["bytes_rank0/fp32_equivalent"] == 2 * ROWS * 4 * WIDTH
    assert found.summary["compression_ratio"] == report.compression_ratio
    assert found.summary["bytes_total.sent"] == report.bytes_total.sent if report.bytes_total else None
    assert found.config["config"]["seed"] == 3
    assert found.artifacts["report"] == ["report.html", "report.json", "run.json"]
    (table,) = made.path.glob("wandb/offline-run-*/files/media/table/traffic_*.json")
    content = json.loads(table.read_text())
    assert content["columns"][:5] == ["layer", "step", "direction", "src", "dst"]
    assert [row[3:5] for row in content["data"]] == [[a, b] for a in range(3) for b in range(3) if a != b]
    assert {row[6] for row in content["data"]} == {4 * ROWS}  # rows of the 4 measured epochs


def test_a_run_that_is_killed_is_mirrored_to_its_last_epoch(synthetic: Make) -> None:
    """Stdin closes without a footer: the mirror sends what is there, and ends."""
    made = synthetic(epochs=6)
    text = made.directory.trace_file(0).read_text()
    lines = text.splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if '"kind":"epoch","epoch":4' in line)
    made.rewrite(0, "".join(lines[:2]))
    patient = "import sys; from sylvie_trace.export import wandb_; wandb_.END_S['offline'] = 600.0; "
    patient += f"sys.exit(wandb_.main([{str(made.path)!r}, '--follow']))"
    process = subprocess.Popen(
        [sys.executable, "-c", patient],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with made.directory.trace_file(0).open("a") as trace:
        for line in lines[2:cut]:
            trace.write(line[: len(line) // 2])
            trace.flush()
            trace.write(line[len(line) // 2 :])
            trace.flush()
        trace.write(lines[cut][:30])  # the kill: half a line
    said, _ = process.communicate(timeout=280)
    assert process.returncode == 0 and "4 epochs mirrored" in said
    found = read_offline(made.path)
    assert [line["epoch"] for line in found.history if "train/loss" in line] == [0, 1, 2, 3]
    assert found.exit_code == 1


def test_a_run_that_never_starts_leaves_nothing(synthetic: Make) -> None:
    made = synthetic(epochs=2)
    made.directory.trace_file(0).unlink()
    done = subprocess.run(
        command(made.path, "--follow"), cwd=ROOT, env=environment(), input="", capture_output=True, text=True, timeout=280
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert not (made.path / "wandb").exists()


def test_an_unreachable_server_means_offline_and_a_note(synthetic: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: a connection is refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        made = synthetic(epochs=3)
        done = mirrored(made.path, "--mode", "online", WANDB_BASE_URL=address, WANDB_API_KEY="0" * 40, no_proxy="*")
    assert done.returncode == 0 and "the server does not answer: mirrored offline" in done.stdout
    assert len([line for line in read_offline(made.path).history if "train/loss" in line]) == 3


@pytest.mark.slow
def test_a_server_that_never_answers_means_offline_and_a_note(synthetic: Make) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        made = synthetic(epochs=3)
        done = mirrored(made.path, "--mode", "online", WANDB_BASE_URL=address, WANDB_API_KEY="0" * 40)
    assert done.returncode == 0 and "the server cannot be used" in done.stdout, done.stdout
    assert len([line for line in read_offline(made.path).history if "train/loss" in line]) == 3


def test_a_directory_that_cannot_be_written_is_told(synthetic: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = synthetic(epochs=3)
    done = mirrored(made.path, WANDB_DIR=str(tmp_path / "file" / "below"))
    assert done.returncode == 1 and "cannot be written" in done.stdout and done.stdout.count("\n") == 1
    assert not (made.path / "wandb").exists()


def test_a_trace_that_is_none_is_told(synthetic: Make) -> None:
    made = synthetic(epochs=3)
    made.rewrite(0, made.directory.trace_file(0).read_text() + "nonsense\n")
    text = made.directory.trace_file(0).read_text().splitlines(keepends=True)
    made.rewrite(0, "".join([text[0], "nonsense\n", *text[1:]]))
    done = mirrored(made.path)
    assert done.returncode == 1 and "rank-00000.jsonl:2: not a record" in done.stdout


def test_online_needs_a_key(tmp_path: Path) -> None:
    check_mode("off")
    check_mode("offline", {}, tmp_path)
    check_mode("online", {"WANDB_API_KEY": "x"}, tmp_path)
    with pytest.raises(ValueError, match=r"needs a key for api\.wandb\.ai: run wandb login, or use --wandb offline"):
        check_mode("online", {}, tmp_path)
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password " + "0" * 40)
    (tmp_path / ".netrc").chmod(0o600)
    check_mode("online", {}, tmp_path)
    with pytest.raises(ValueError, match=r"for wandb\.example"):
        check_mode("online", {"WANDB_BASE_URL": "https://wandb.example"}, tmp_path)


def test_a_proxy_is_trusted_to_reach_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert reachable({"WANDB_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}"})
    assert reachable({"HTTPS_PROXY": "http://proxy", "WANDB_BASE_URL": "http://127.0.0.1:9"})


def test_unknown_values_are_left_out(synthetic: Make) -> None:
    trace = read_run(synthetic(epochs=2).path).ranks[0]
    first = epoch_values(trace.epochs[0], None, None, False)
    assert "train/ldr" not in first and "bits_rank0/mean" not in first and first["controller/forced_sync"] == 0
    bits = Bits(epoch=0, base_bits=1, histogram={"1": 3, "8": 1})
    assert epoch_values(trace.epochs[1], bits, trace.decisions[1], True)["bits_rank0/mean"] == 2.75
    assert bit_counts(bits) == [3, 0, 0, 1, 0, 0]


def test_following_a_trace(synthetic: Make) -> None:
    """Records come as they are written, details are passed over, the footer is the end."""
    made = synthetic(epochs=3)
    path = made.directory.trace_file(0)
    data = path.read_bytes()
    path.unlink()
    started = threading.Event()

    def write() -> None:
        started.wait()
        with path.open("ab", buffering=0) as file:
            for at in range(0, len(data), 700):
                file.write(data[at : at + 700])
                time.sleep(0.001)
            file.write(b'{"kind":"later"}\n')

    writer = threading.Thread(target=write)
    writer.start()
    started.set()
    kinds = [type(record) for record in follow(path, lambda: False, poll_s=0.001)]
    writer.join()
    assert kinds[-1] is Footer
    assert (kinds.count(Epoch), kinds.count(Bits), kinds.count(Decision)) == (3, 3, 3)
    assert len(kinds) == 11  # the header, three epochs of three records, the footer


def test_the_export_command(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic(epochs=3)
    assert main(["export", str(made.path), "--mode", "offline"]) == 2
    assert "--mode offline belongs to --to wandb" in capsys.readouterr().err
    assert main(["export", str(made.path), "--to", "wandb", "--epochs", "1:2"]) == 2
    assert "--epochs belongs to --to perfetto" in capsys.readouterr().err
    code = f"import sys; from sylvie_trace.cli import main; sys.exit(main(['export', {str(made.path)!r}, '--to', 'wandb']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "3 epochs mirrored" in done.stdout
