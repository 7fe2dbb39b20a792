"""`make bench`."""

from __future__ import annotations

from bench.engine import main

if __name__ == "__main__":
    main()
