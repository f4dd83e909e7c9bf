"""Settings shared by all tests."""

from __future__ import annotations

from hypothesis import settings

# Tests run beside other work, so an example's wall time says nothing about the code.
settings.register_profile("sylvie", deadline=None)
settings.load_profile("sylvie")
