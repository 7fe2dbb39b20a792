"""What an option is: its names, its type, its default, its range, and a sentence about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Panel(StrEnum):
    """What an option is about."""

    ASK = "What is asked"
    WHOM = "Who is asked"
    OUTPUT = "Output"
    ROWS = "Input and rows"
    TIME = "Retries, time and money"


# Which commands have an option, and which Python functions take it as an argument.
JOB_COMMANDS = frozenset({"run", "check", "quote", "tune"})
ASK_COMMANDS = JOB_COMMANDS | {"retry"}
EXPORT_COMMANDS = JOB_COMMANDS | {"export"}
RUN = frozenset({"run"})
ASKS = frozenset({"run", "map"})
CALLS = ASKS | {"call"}
NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One thing that a user may state.

    `name` is the Python argument's, `key` where it stands in a job file (`endpoints[].rpm`; empty for what is no part
    of a job), `flag` the command line's spelling.  `help` is a phrase without a full stop; `note` adds sentences in
    the reference.  `default` is the value, `default_words` what to call it where it depends on something.  `example`
    is YAML that may stand in a job file as it is, the last part of `key` first.
    """

    name: str
    key: str = ""
    type: str
    help: str
    note: str = ""
    default: object = None
    default_words: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    example: str = ""
    panel: Panel = Panel.ASK
    metavar: str = ""
    own_flag: str = ""
    short: str = ""
    repeatable: bool = False
    checked_by_parser: bool = False
    commands: frozenset[str] = NOWHERE
    python: frozenset[str] = NOWHERE

    @property
    def flag(self) -> str:
        """How it is spelled on the command line, and in messages about a flat option."""
        return self.own_flag or "--" + self.name.replace("_", "-")

    @property
    def shown_default(self) -> str:
        """The default in words; empty where there is none to speak of."""
        if self.default_words or self.default is None:
            return self.default_words
        if isinstance(self.default, bool):
            return "on" if self.default else ""
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return ", ".join(self.default) if isinstance(self.default, tuple) else str(self.default)

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value.  Only for options that have both."""
        assert self.low is not None, self.name
        assert self.high is not None, self.name
        return self.low, self.high
