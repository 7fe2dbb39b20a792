"""Names of columns in templates: what is said where there is none such, and how one with an odd name is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from rowmill.errors import JobError

OWN_NAMES = frozenset({"row", "_row"})
_JINJA_WORDS = frozenset(
    ["and", "else", "false", "if", "in", "is", "none", "not", "or", "true", "False", "None", "True"]
)


def check_names(named: Iterable[str], known: Sequence[str], user: str) -> None:
    """Raises JobError for names, used by `user`, that are none of the input's columns."""
    faults = [no_column(name, known, user, "the input") for name in sorted(set(named) - set(known))]
    if faults:
        raise JobError(*faults)


def no_column(name: str, known: Sequence[str], user: str, holder: str) -> str:
    """The sentence about a name that is none of the columns that a holder has."""
    if not known:
        return f"{user} uses the column `{name}`; {holder} has no columns"
    ordered = sorted(known, key=lambda other: -SequenceMatcher(None, name.lower(), other.lower()).ratio())
    listed = ", ".join(ordered[:20]) + (f" and {len(ordered) - 20} more" if len(ordered) > 20 else "")
    return f"{user} uses the column `{name}`; {holder} has {listed}{_meant(name, ordered)}"


def _meant(name: str, ordered: Sequence[str]) -> str:
    """How the column that was meant is written, where a name tells which: it is alike, or begins so and is no word."""
    small = name.lower()
    odd = next((one for one in ordered if one.lower().startswith(small) and not _is_word(one)), None)
    alike = next((one for one in ordered if SequenceMatcher(None, small, one.lower()).ratio() > 0.75), None)
    found = odd if alike is None or (odd is not None and alike.lower() != small) else alike
    return "" if found is None else f"; did you mean {column_hole(found)}?"


def column_hole(name: str) -> str:
    """How a template writes a column of this name."""
    return f"{{{{ {name} }}}}" if _is_word(name) else f"{{{{ row[{name!r}] }}}}"


def _is_word(name: str) -> bool:
    return name.isidentifier() and name not in _JINJA_WORDS and name not in OWN_NAMES
