"""``python -m sylvie_trace`` is ``sylvie-report``."""

from sylvie_trace.cli import main

raise SystemExit(main())
