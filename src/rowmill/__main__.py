"""Lets `python -m rowmill` stand in for the `rowmill` command."""

from rowmill.cli import main

if __name__ == "__main__":
    main()
