"""The one-way dependencies of both packages, read from their imports, and what importing them costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: A module may import those of its own or a lower level. A name stands for itself and everything in it.
LEVELS = {
    "sylvie": {
        "codec": 0,
        "config": 0,
        "launch": 0,
        "placement": 0,
        "data": 1,
        "partition": 2,
        "extractor": 3,
        "exchange": 4,
        "systems": 5,
        "nn": 5,
        "connect": 5,
        "evaluate": 6,
        "coordinator": 6,
        "checkpoint": 6,
        "trainer": 7,
        "cli": 8,
    },
    "sylvie_trace": {
        "schema": 0,
        "recorder": 1,
        "run_dir": 1,
        "nvtx": 1,
        "decision": 1,
        "columns": 1,
        "reader": 2,
        "timeline": 3,
        "epochs": 4,
        "breakdown": 4,
        "traffic": 4,
        "wall": 5,
        "arrival": 5,
        "conservation": 5,
        "audit": 5,
        "replay": 5,
        "resample": 1,
        "curves": 5,
        "job": 5,
        "groups": 5,
        "compare": 5,
        "shuffled": 5,
        "whatif": 5,
        "details": 6,
        "report_types": 5,
        "diagnose": 6,
        "findings": 6,
        "summary": 7,
        "report": 8,
        "questions": 8,
        "cli": 9,
    },
}
#: (importing module, what it must not import).
FORBIDDEN = [
    ("sylvie.exchange", "sylvie.systems"),
    ("sylvie.exchange", "sylvie.nn"),
    ("sylvie.nn", "sylvie.systems"),
    ("sylvie_trace", "sylvie"),
    ("sylvie_trace", "torch"),
    ("sylvie_trace", "dgl"),
    ("sylvie", "analysis"),
    ("sylvie", "examples"),
    ("sylvie", "tests"),
    ("sylvie_trace", "analysis"),
    ("sylvie_trace", "examples"),
    ("sylvie_trace", "tests"),
]
CODEC_MAY_IMPORT = {"sylvie.codec", "torch", "numba", "triton", "numpy", "llvmlite"} | set(sys.stdlib_module_names)


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Full names of everything a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + (1 if is_package else 0)]
                base = ".".join((*parents, node.module) if node.module else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def all_imports() -> list[tuple[str, str]]:
    return [
        (module, imported)
        for package in LEVELS
        for module, path in modules(package)
        for imported in imports(path.read_text(), module, path.name == "__init__.py")
    ]


def violations(pairs: list[tuple[str, str]]) -> list[str]:
    """Imports that go against the levels or are forbidden, as lines."""
    found = []
    for module, imported in pairs:
        for importer, banned in FORBIDDEN:
            if within(module, importer) and within(imported, banned):
                found.append(f"{module} imports {imported}")
        package, _, rest = module.partition(".")
        target_package, _, target = imported.partition(".")
        levels = LEVELS.get(package, {})
        mine, theirs = levels.get(rest.split(".")[0]), levels.get(target.split(".")[0])
        if package == target_package and mine is not None and theirs is not None and theirs > mine:
            found.append(f"{module} (level {mine}) imports {imported} (level {theirs})")
        codec_import = within(module, "sylvie.codec") and not imported.startswith("sylvie.codec")
        if codec_import and imported.split(".")[0] not in CODEC_MAY_IMPORT and imported != "sylvie":
            found.append(f"{module} imports {imported}: the codec knows torch, numba, triton and itself only")
    return found


def test_dependencies_go_one_way() -> None:
    pairs = all_imports()
    assert ("sylvie_trace.reader", "sylvie_trace.schema") in pairs
    assert violations(pairs) == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("sylvie_trace.reader", "sylvie_trace.report.json_"),
        ("sylvie_trace.reader", "sylvie.config"),
        ("sylvie_trace.cli", "torch.nn"),
        ("sylvie.nn.sage", "sylvie.systems.vanilla"),
        ("sylvie.exchange.halo", "sylvie.systems"),
        ("sylvie.data.npz", "sylvie.trainer"),
        ("sylvie.codec.cpu", "sylvie.exchange.plan"),
        ("sylvie.codec.cpu", "dgl"),
        ("sylvie.cli", "analysis.bench"),
    ],
)
def test_a_wrong_import_is_noticed(module: str, imported: str) -> None:
    assert violations([(module, imported)])


def test_relative_imports_are_resolved() -> None:
    assert "a.b.c" in set(imports("from .c import d", "a.b.e", is_package=False))
    assert "a.b.c" in set(imports("from . import c", "a.b", is_package=True))
    assert "a.c" in set(imports("from ..c import d", "a.b.e", is_package=False))


def test_the_companion_loads_no_torch() -> None:
    """All of sylvie_trace, module by module, leaves torch, dgl and the trainer unloaded."""
    names = [name for name, _ in modules("sylvie_trace") if not name.endswith("__main__")]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'dgl', 'sylvie'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
