"""Nsight Systems exports, made here table by table: what is missing, open, named elsewhere, or of another process."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.cli import main
from sylvie_trace.importers.align import Imported, align
from sylvie_trace.importers.nsys import read_export
from sylvie_trace.reader import read_run
from tests.sylvie_trace.conftest import MS, ROWS, SyntheticRun

Make = Callable[..., SyntheticRun]
UTC, SYLVIE, OTHER = 7_000 * MS, 5, 6
SENT = ROWS * 2 + ROWS * 8 + 32  # one peer, 16 columns at 1 bit


def thread(pid: int, tid: int = 1) -> int:
    """globalTid, with the bits of a virtual machine above those of the process."""
    return (3 << 56) | (1 << 48) | (pid << 24) | tid


class Export:
    """An export under construction; ``inline`` false puts names into StringIds, as recent versions do."""

    def __init__(self, path: Path, *, inline: bool = True, version: str | None = "3.18.2", utc: int | None = UTC) -> None:
        self.path, self._inline = path, inline
        self._database = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        if version is not None:
            self._database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
            self._database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', ?)", (version,))
        if utc is not None:
            self._database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT)")
            self._database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '')", (utc,))

    def events(self, rows: Sequence[dict[str, Any]]) -> Export:
        """Add NVTX_EVENTS with these rows; absent columns are NULL."""
        names = '"start", "end", eventType, globalTid, text, textId, domainId, int64Value, uint64Value'
        self._database.execute(f"CREATE TABLE NVTX_EVENTS ({names})")
        for row in rows:
            row = {"text": None, "textId": None, "int64Value": None, "uint64Value": None, "domainId": 0, **row}
            if not self._inline and row["text"] is not None:
                row |= {"text": None, "textId": self._strings.setdefault(row["text"], 40 + len(self._strings))}
            order = [name.strip().strip('"') for name in names.split(",")]
            values = [row.get(name) for name in order]
            self._database.execute(f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * len(values))})", values)
        return self

    def close(self) -> Path:
        if not self._inline:
            self._database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            self._database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, s) for s, i in self._strings.items()])
        self._database.commit()
        self._database.close()
        return self.path


def domain(pid: int, number: int = SYLVIE, name: str = "sylvie") -> dict[str, Any]:
    return {"start": 0, "end": None, "eventType": 75, "globalTid": thread(pid), "domainId": number, "text": name}


def profile(made: SyntheticRun, *, clock_error_ns: int = 0, late_ns: int = 2_000) -> list[dict[str, Any]]:
    """What a profiler would have seen of a synthetic run: every range 2 µs after its record, on a clock of its own."""
    rows = []
    for rank in range(made.plan.world_size):
        lines = made.lines(rank)
        header = lines[0]
        pid = header["pid"]
        rows.append(domain(pid))

        def seen(ns: int, header: dict[str, Any] = header) -> int:
            return ns - header["clock_ns"] + header["wall_ns"] - UTC + clock_error_ns + late_ns

        def add(
            name: str, start: int, end: int, payload: int | None = None, kind: int = 59, tid: int = 1, pid: int = pid
        ) -> None:
            row = {"start": seen(start), "end": seen(end), "eventType": kind, "globalTid": thread(pid, tid)}
            rows.append({**row, "domainId": SYLVIE, "text": name, "int64Value": payload})

        for record in lines:
            if record["kind"] == "epoch":
                add(f"epoch {record['epoch']}", record["start_ns"], record["end_ns"], record["epoch"])
            elif record["kind"] == "span" and record["epoch"] >= 0:
                add(record["name"], record["start_ns"], record["end_ns"])
            elif record["kind"] == "message" and record["peer"] == (0 if rank else 1):
                for action in ("encode", "wire", "decode", "wait"):
                    if record[f"{action}_start_ns"] is not None:
                        site = (record[f"{action}_start_ns"], record[f"{action}_end_ns"])
                        size = sum(record[f"{kind}_bytes"] for kind in ("main", "meta", "header"))
                        size *= made.plan.world_size - 1
                        add(f"L2.0 fwd {action}", *site, size, tid=2 if action == "wire" else 1)
    return rows


def imported(made: SyntheticRun, path: Path, ranks: Sequence[int] | None = None) -> Imported:
    return align(read_run(made.path), read_export(path), ranks)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("clock_error_ns", [0, 3_600_000 * MS, -41])
def test_every_range_finds_its_record(synthetic: Make, tmp_path: Path, inline: bool, clock_error_ns: int) -> None:
    made = synthetic(world_size=3, epochs=12)
    rows = profile(made, clock_error_ns=clock_error_ns)
    result = imported(made, Export(tmp_path / "p.sqlite", inline=inline).events(rows).close())
    assert [each.rank for each in result.ranks] == [0, 1, 2]
    for each in result.ranks:
        assert each.matched == each.ranges and each.epochs == 12
        assert each.shift_ns == clock_error_ns + 2_000
        assert each.largest_difference_ns == 0 and each.payload_differs == 0
    wires = [item for item in result.ranges if item.action == "wire" and item.rank == 1]
    assert [item.epoch for item in wires] == list(range(12))
    records = [record for record in made.lines(1) if record["kind"] == "message" and record["peer"] == 0]
    sent = [2 * sum(record[f"{kind}_bytes"] for kind in ("main", "meta", "header")) for record in records]
    assert wires[0].bytes == 2 * SENT
    assert [(item.what, item.peers, item.bytes) for item in wires] == [("message", (0, 2), size) for size in sent]
    assert {item.epoch for item in result.ranges if item.name == "forward"} == set(range(12))


def test_an_open_range_is_kept_open(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(epochs=3)
    rows = profile(made)
    last = max((row for row in rows if row["text"] == "L2.0 fwd wire"), key=lambda row: row["start"])
    last["end"] = None
    result = imported(made, Export(tmp_path / "p.sqlite").events(rows).close())
    (opened,) = [item for item in result.ranges if item.end_ns is None]
    assert opened.what == "message" and opened.epoch == 2
    assert sum(each.open for each in result.ranks) == 1


def test_a_domain_belongs_to_a_process(synthetic: Make, tmp_path: Path) -> None:
    """The same domain number means another domain in another process."""
    made = synthetic(epochs=3)
    rows = [row for row in profile(made) if row["globalTid"] == thread(100) or row["text"] != "sylvie"]
    rows.append(domain(101, SYLVIE, "NCCL"))
    rows.append(domain(100, OTHER, "other"))
    rows.append({"start": 1, "end": 2, "eventType": 60, "globalTid": thread(100), "domainId": OTHER, "text": "x"})
    rows.append({"start": 1, "end": 2, "eventType": 60, "globalTid": thread(999), "domainId": SYLVIE, "text": "epoch 1"})
    rows.append(domain(999))
    result = imported(made, Export(tmp_path / "p.sqlite").events(rows).close())
    assert [each.rank for each in result.ranks] == [0]
    seen_of_rank_1 = sum(row["globalTid"] >> 24 == thread(101) >> 24 for row in rows) - 1
    assert (result.foreign, result.strange) == (seen_of_rank_1 + 1, 1)


def test_ranges_that_are_no_record_stay_unmatched(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(epochs=3)
    rows = profile(made)
    base = {"eventType": 59, "globalTid": thread(100), "domainId": SYLVIE}
    far = max(row["start"] for row in rows) + 1000 * MS
    strangers = [("epoch 77", 5), ("L9.0 fwd encode", 5), ("L2.0 fwd encode", far), ("nothing", 5), ("forward", far)]
    rows += [{**base, "start": start, "end": start + 1, "text": name} for name, start in strangers]
    result = imported(made, Export(tmp_path / "p.sqlite").events(rows).close())
    assert sorted(item.name for item in result.ranges if item.what is None) == sorted(name for name, _ in strangers)
    assert result.ranks[0].ranges - result.ranks[0].matched == 5


def test_bytes_that_differ_are_counted(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(epochs=3)
    rows = profile(made)
    chosen = [row for row in rows if row["text"] == "L2.0 fwd encode"]
    chosen[0]["int64Value"] += 1
    chosen[1] |= {"uint64Value": chosen[1]["int64Value"], "int64Value": None}
    result = imported(made, Export(tmp_path / "p.sqlite").events(rows).close())
    assert sum(each.payload_differs for each in result.ranks) == 1


def test_two_ranks_of_one_process_id(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(epochs=3)
    lines = made.lines(1)
    lines[0] |= {"pid": 100, "host": "there"}
    rows = profile(made)
    made.rewrite(1, "".join(json.dumps(line) + "\n" for line in lines))
    path = Export(tmp_path / "p.sqlite").events(rows).close()
    with pytest.raises(ValueError, match="ranks 0 and 1 had the same process id 100"):
        imported(made, path)
    assert [each.rank for each in imported(made, path, [0]).ranks] == [0]


def test_old_columns_are_enough(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(epochs=2)
    path = Export(tmp_path / "p.sqlite", version="2.7.1").close()
    database = sqlite3.connect(path)
    database.execute('CREATE TABLE NVTX_EVENTS ("start", "end", eventType, globalTid, text, domainId)')
    columns = ("start", "end", "eventType", "globalTid", "text", "domainId")
    rows = [tuple(row[name] for name in columns) for row in profile(made)]
    database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    result = imported(made, path)
    assert all(each.matched == each.ranges and each.payload_differs == 0 for each in result.ranks)


def test_the_command_writes_what_each_range_was(synthetic: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic(epochs=3)
    path = Export(tmp_path / "mine.sqlite").events(profile(made)).close()
    assert main(["import-nsys", str(made.path), str(path)]) == 0
    said = capsys.readouterr().out
    assert "rank 0:" in said and "ranges matched" in said
    written = json.loads((made.path / "nsys-mine.json").read_text())
    assert main(["import-nsys", str(made.path), str(path), "--json", "--ranks", "0,1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ranges"] == written["ranges"] and answer["path"].endswith("nsys-mine.json")
    assert {item["what"] for item in written["ranges"]} == {"epoch", "span", "message"}


def test_what_is_no_export_is_refused_in_one_line(synthetic: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic(epochs=2)
    (tmp_path / "text").write_text("no sqlite")
    (tmp_path / "torn").write_bytes(b"SQLite format 3\x00" + bytes(50))
    rows = [domain(100, SYLVIE, "other")]
    elsewhere = [domain(4), {"start": 1, "end": 2, "eventType": 59, "globalTid": thread(4), "domainId": SYLVIE, "text": "x"}]
    cases = [
        (tmp_path / "absent", "No such file"),
        (tmp_path / "text", "is no sqlite file"),
        (tmp_path / "torn", "cannot be read"),
        (Export(tmp_path / "a", version=None).close(), "it is not an export of Nsight Systems"),
        (Export(tmp_path / "b", version="4.0.0").close(), "schema 4.0.0, known are 2 and 3"),
        (Export(tmp_path / "c", version="").close(), "names no EXPORT_SCHEMA_VERSION"),
        (Export(tmp_path / "d", utc=None).close(), "does not say when its session started"),
        (Export(tmp_path / "e").close(), "holds no NVTX event"),
        (Export(tmp_path / "f").events(rows).close(), "no range of the domain sylvie"),
        (Export(tmp_path / "g").events(elsewhere).close(), "is of other processes"),
    ]
    for path, said in cases:
        assert main(["import-nsys", str(made.path), str(path)]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, error
    assert not list(made.path.glob("nsys-*"))
    path = Export(tmp_path / "h").events(profile(made)).close()
    assert main(["import-nsys", str(made.path), str(path), "--ranks", "9"]) == 2
    assert "--ranks '9' must name ranks below 2" in capsys.readouterr().err


def test_a_profile_is_not_written_to(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(epochs=2)
    path = Export(tmp_path / "p.sqlite").events(profile(made)).close()
    path.chmod(0o444)
    before = path.read_bytes()
    imported(made, path)
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.glob("p.sqlite*")] == ["p.sqlite"]
