"""Every test computes on one thread: worlds of several ranks share the cores of one machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DGLBACKEND", "pytorch")

from hypothesis import settings

settings.register_profile("steady", deadline=None)  # the machine may be busy: time is no property of the code
settings.load_profile("steady")
