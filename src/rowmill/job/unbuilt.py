"""What CONTRACT promises and this version does not build yet: known, and refused with a clear word.

Take a name out of here when the feature arrives.
"""

from collections.abc import Mapping

# Where in a job file -> keys.  "" is the top level, "endpoints" each endpoint.
KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset(),
    "endpoints": frozenset({"weight"}),
}

OPTIONS: frozenset[str] = frozenset()

COMMANDS: Mapping[str, str] = {}

DATABASES = ("mysql://", "mariadb://", "mssql://", "oracle://", "snowflake://", "bigquery://")


def refusal(name: str) -> str:
    """The sentence that refuses `name`."""
    return f"`{name}` is not built yet in this version"
