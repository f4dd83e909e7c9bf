"""A session that leaves beside its run how many threads and open files the process holds afterwards, and its process id."""

import json
import os

from sylvie.session import Session


class CountingSession(Session):
    def run(self) -> None:
        super().run()
        counts = {kind: len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")} | {"pid": os.getpid()}
        (self.run_dir.path / f"held-{self.world.rank}.json").write_text(json.dumps(counts))
