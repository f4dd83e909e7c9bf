"""Names and paths: what is found where, and what an unknown or absent dataset is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sylvie.data import find_source, load, registered_names
from tests.sylvie.graphs import write_npz


def test_registered_name_takes_the_npz_of_the_root_first(tmp_path: Path) -> None:
    write_npz(tmp_path / "reddit.npz")
    graph = load("reddit", data_root=tmp_path)
    assert (graph.name, graph.num_nodes) == ("reddit", 12)


def test_any_npz_of_the_root_can_be_named(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz")
    assert load("mine", data_root=tmp_path).name == "mine"


def test_environment_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tmp_path / "flickr.npz")
    monkeypatch.setenv("SYLVIE_DATA", str(tmp_path))
    assert load("flickr").num_nodes == 12


def test_unknown_name_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'pubmet' is unknown.*did you mean pubmed"):
        load("pubmet", data_root=tmp_path)


def test_missing_path_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.npz: no such file"):
        load(str(tmp_path / "gone.npz"))


@pytest.mark.parametrize("name", [name for name in registered_names() if name != "generator"])
def test_absent_dataset_is_told_what_is_expected_where(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError) as caught:
        load(name, data_root=tmp_path)
    message = str(caught.value)
    assert str(tmp_path / f"{name}.npz") in message
    assert "{" in message
    assert "\n" not in message


def test_folder_without_known_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no known layout"):
        load(str(tmp_path))


def test_identity_follows_the_file_and_the_parameters(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    first = find_source(str(path), data_root=None, seed=0)
    assert first.identity() == find_source(str(path), data_root=None, seed=5).identity()
    assert first.identity() != first.projected(8, 0).identity()
    assert first.projected(8, 0).identity() != first.projected(8, 1).identity()
    before = first.identity()
    os.utime(path, ns=(1, 1))
    assert first.identity() != before


def test_identity_of_the_generator_follows_its_settings() -> None:
    names = ["generator", "generator:nodes=100,degree=4", "generator:seed=3"]
    identities = [find_source(name, data_root=None, seed=0).identity() for name in names]
    assert len(set(identities)) == 3
    assert identities[2] == find_source("generator", data_root=None, seed=3).identity()
