"""`rowmill simulate`."""

from __future__ import annotations

from typing import Any

import typer

# The simulator reads its arguments itself, so that `python -m rowmill.simulator` has the same ones.
PASSED_ON: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def simulate(context: typer.Context) -> None:
    """Serve as an OpenAI-compatible endpoint with latency, limits and faults, to rehearse with."""
    from rowmill.simulator.__main__ import main

    raise typer.Exit(main(context.args))
