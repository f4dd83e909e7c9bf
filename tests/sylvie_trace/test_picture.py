"""The pages of a comparison and of a replay: complete, self-contained, and safe with any name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sylvie_trace.cli import main

Make = Callable[..., Any]


def figures(page: str) -> dict[str, Any]:
    """The figures of a page by the name of their element."""
    found = {}
    for name, text in re.findall(r'<div id="([a-z-]+)"></div>\n<script>.*?const made = (\{.*?\});\n', page, flags=re.S):
        found[name] = json.loads(text)
    return found


def test_a_replay_beside_the_log(synthetic: Make, tmp_path: Path) -> None:
    losses = [2.0 / (1 + epoch) + 0.05 * (epoch % 3) for epoch in range(30)]
    run, out = synthetic(epochs=30, losses=losses), tmp_path / "replay.html"
    assert main(["replay", str(run.path), "--rule", "prose", "--html", str(out)]) == 0
    page = out.read_text()
    made = figures(page)
    assert list(made) == ["replay-ldr", "replay-bits", "replay-mode"]
    log, replayed, constant = made["replay-bits"]["data"]
    assert len(log["y"]) == len(replayed["y"]) == 30 and log["y"] != replayed["y"]
    assert [trace["name"] for trace in (log, replayed, constant)] == ["log", "replay", "constant clock"]
    # The synthetic epochs all take the same time: a constant clock changes nothing.
    assert constant["y"] == log["y"]
    assert "src=" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)


def test_a_comparison_shows_curves_and_the_front(synthetic: Make, tmp_path: Path) -> None:
    paths = []
    for name in ("sylvie", 'x</script><b>"é'):
        run = synthetic(epochs=12)
        info = json.loads(run.directory.run_json.read_text())
        info["config"]["system"] = name
        run.directory.run_json.write_text(json.dumps(info))
        paths.append(str(run.path))
    out = tmp_path / "compare.html"
    assert main(["compare", *paths, "--html", str(out)]) == 0
    page = out.read_text()
    made = figures(page)
    assert list(made) == ["compare-time", "compare-bytes", "compare-pareto"]
    assert made["compare-pareto"]["data"][1]["name"] == "x&lt;/script&gt;&lt;b&gt;&#34;é"
    assert 'x</script><b>"' not in page
    assert "inconclusive" in page
