"""What CONTRACT promises and this version does not build yet: known, and refused with a clear word.

Take a name out of here when the feature arrives.
"""

from collections.abc import Mapping

# Where in a job file -> keys.  "" is the top level, "endpoints" each endpoint.
KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset({"budget_usd", "dedupe", "pilot", "query", "table"}),
    "answer": frozenset({"expect", "fallback", "fallback_for", "repair"}),
    "endpoints": frozenset(
        {
            "parse",
            "pin",
            "price",
            "prompt",
            "quota",
            "take",
            "weight",
            "when",
            "cascade",
        }
    ),
}

OPTIONS = frozenset(
    {
        "--budget-usd",
        "--dedupe",
        "--expect",
        "--fallback",
        "--pilot",
        "--query",
        "--repair",
        "--table",
        "--yes",
        "-y",
    }
)

COMMANDS: Mapping[str, str] = {
    "quote": "pilot on a sample: cost and time",
}

DATABASES = ("postgresql://", "postgres://", "sqlite://", "duckdb://", "mysql://")


def refusal(name: str) -> str:
    """The sentence that refuses `name`."""
    return f"`{name}` is not built yet in this version"
