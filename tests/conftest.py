"""Every test computes on one thread: worlds of several ranks share the cores of one machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DGLBACKEND", "pytorch")
