"""``python -m sylvie`` is ``sylvie-train``."""

import sys

from sylvie.cli import main

if __name__ == "__main__":
    sys.exit(main())
