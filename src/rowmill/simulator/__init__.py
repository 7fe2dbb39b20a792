"""A chat-completions server with scripted faults, limits and latency: for rehearsals, tests and benchmarks.

It knows nothing of the engine, the providers or the transports that talk to it.  From a test::

    from rowmill.simulator import Behaviour, Simulator

    with Simulator(Behaviour(scripts={"row-17": "503, 503, ok"}, latency="0.01")) as simulator:
        ...  # POST simulator.url + "/chat/completions"
        assert simulator.counters()["tokens"]["row-17"] == 3

`[[row-17]]` in the last user message names the row: it is what scripts and counters are keyed by, and the
answer echoes it.  `[[row-17 latency=2 status=503]]` overrides the behaviour for that request (see
`Step.parse`).  From a shell, the first line printed is the base URL::

    python -m rowmill.simulator --rpm 600 --slots 64 --latency 0.5 --fail 2%
    curl http://127.0.0.1:PORT/counters
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowmill.simulator.behaviour import Behaviour, Latency, Outage
    from rowmill.simulator.script import Fault, Step
    from rowmill.simulator.server import Simulator

__all__ = ["Behaviour", "Fault", "Latency", "Outage", "Simulator", "Step"]

_MODULES = {
    "Behaviour": "rowmill.simulator.behaviour",
    "Latency": "rowmill.simulator.behaviour",
    "Outage": "rowmill.simulator.behaviour",
    "Fault": "rowmill.simulator.script",
    "Step": "rowmill.simulator.script",
    "Simulator": "rowmill.simulator.server",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
