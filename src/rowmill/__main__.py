"""The `rowmill` command, also as `python -m rowmill`: nothing is loaded before a Ctrl-C ends it without a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Loads the command line and runs it."""
    try:
        from rowmill.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
