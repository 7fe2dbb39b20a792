"""What is planned and not built yet in this version: known, and refused with a clear word.

Take a name out of here when the feature arrives.
"""

# Of an endpoint.
KEYS = frozenset({"weight"})

DATABASES = ("mysql://", "mariadb://", "mssql://", "oracle://", "snowflake://", "bigquery://")


def refusal(name: str) -> str:
    """The sentence that refuses `name`."""
    return f"`{name}` is not built yet in this version"
