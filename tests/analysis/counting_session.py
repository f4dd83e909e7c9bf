"""A session that leaves beside its run how many threads and open files the process holds afterwards, and its process id."""

import json
import os
import time

from sylvie.session import Session


class CountingSession(Session):
    def run(self) -> None:
        super().run()
        counts = {kind: _settled(kind) for kind in ("task", "fd")} | {"pid": os.getpid()}
        (self.run_dir.path / f"held-{self.world.rank}.json").write_text(json.dumps(counts))


def _settled(kind: str) -> int:
    """The fewest entries seen within half a second: a joined thread is listed for a moment after its join."""
    least = len(os.listdir(f"/proc/self/{kind}"))
    for _ in range(25):
        time.sleep(0.02)
        least = min(least, len(os.listdir(f"/proc/self/{kind}")))
    return least
