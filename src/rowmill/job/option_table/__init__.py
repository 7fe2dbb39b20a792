"""Every option, declared once; the command line, the job, Python's arguments and the reference are made from it.

It must not know how a job is run, and imports nothing that takes time: `rowmill --help` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowmill.errors import JobError
from rowmill.job.option_table.asking import ASKING
from rowmill.job.option_table.endpoint import ENDPOINT, HTTP, NEVER_SHARED, PRICE
from rowmill.job.option_table.option import Option, Panel
from rowmill.job.option_table.rows import CALLING, ROWS

OPTIONS: tuple[Option, ...] = (*ASKING, *ENDPOINT, *PRICE, *HTTP, *ROWS, *CALLING)
BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
BY_KEY: Mapping[str, Option] = {option.key: option for option in OPTIONS if option.key}


def default(key: str) -> Any:
    """The value of a job-file key that is not given."""
    return BY_KEY[key].default


def command_options(command: str) -> tuple[Option, ...]:
    """The options that a command shares with others, in the order in which they are shown."""
    found = [option for option in OPTIONS if command in option.commands]
    return tuple(sorted(found, key=lambda option: list(Panel).index(option.panel)))


def python_arguments(function: str) -> frozenset[str]:
    """The keyword arguments of `run`, of `map` with a prompt, or (`call`) of `map` with a function."""
    return frozenset(option.name for option in OPTIONS if function in option.python)


def check_choice(name: str, value: object, spelled: str) -> None:
    """Raises JobError for a value that is none of the option's choices; None means not given."""
    choices = BY_NAME[name].choices
    if value is not None and value not in choices:
        raise JobError(f"{spelled}: must be {' or '.join(choices)}, not {value!r}")


def parent(key: str) -> str:
    """The key in which `key` stands: `endpoints[].price` of `endpoints[].price.unit`, empty at the top."""
    return key.rpartition(".")[0]


__all__ = [
    "BY_KEY",
    "BY_NAME",
    "NEVER_SHARED",
    "OPTIONS",
    "Option",
    "Panel",
    "check_choice",
    "command_options",
    "default",
    "parent",
    "python_arguments",
]
