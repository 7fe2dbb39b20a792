"""`make bench`, or `python -m bench NAME ...` for some measurements only; `report` writes what is kept anew.

race        Rowmill, its peers and the limit against one neutral server (about eight minutes)
sizes       memory, run file, resume and export of a million rows; starting up (about five minutes)
report      docs/benchmarks.md and its plots from what was measured last
flames      docs/hot-path.svg: where the time of the hot path goes
transports  both transports against the simulator
databases   rows a second into and out of PostgreSQL, SQLite and DuckDB (a minute)
langchain   a batch of RunnableBatch beside LangChain's own on a model that answers at once (about four minutes)
calls       100,000 rows through a function: processor time and memory (about five minutes)
limits      rates, outages and queues, held to the simulator's counters (about ten minutes)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial

from bench import calls, databases, flames, limits, race, report, sizes, transports

USUAL = ("race", "sizes", "report")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures speed and memory.")
    names = "race, sizes, report, flames, transports, databases, langchain, calls, limits"
    parser.add_argument("names", nargs="*", help=f"{names}; without: the first 3")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the race, of which medians are taken")
    asked = parser.parse_args()
    table: Mapping[str, Callable[[], None]] = {
        "race": partial(race.main, asked.rounds),
        "sizes": sizes.main,
        "report": report.main,
        "flames": flames.main,
        "transports": transports.main,
        "databases": databases.main,
        "langchain": langchain,
        "calls": calls.main,
        "limits": limits.main,
    }
    unknown = [name for name in asked.names if name not in table]
    if unknown:
        parser.error(f"{', '.join(unknown)} is none of {', '.join(table)}")
    for name in asked.names or USUAL:
        table[name]()


def langchain() -> None:
    """Needs langchain-core, which the other measurements do without."""
    from bench import langchain as measurement

    measurement.main()


if __name__ == "__main__":
    main()
