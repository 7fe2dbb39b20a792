"""The options that several commands share, made from the table of options; they only collect what the user typed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

from rowmill.errors import JobError
from rowmill.job.option_table import BY_NAME, Option, command_options

Output = Annotated[str, typer.Argument(metavar="OUTPUT", help="The output of the run.", show_default=False)]
RunFile = Annotated[
    str | None,
    typer.Option("--run-file", metavar="PATH", help="The run file, if it is not OUTPUT.rowmill.", show_default=False),
]
Statuses = Annotated[
    str | None,
    typer.Option("--status", metavar="S[,S]", help="Only rows that ended so, e.g. failed,invalid.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show errors only.")]


UNSPOKEN = ("required", "none", "all")  # defaults that go without saying


def help_of(option: Option) -> str:
    """What `--help` says of an option: a sentence, with the default in brackets."""
    default = option.shown_default
    return f"{option.help}." if not default or default in UNSPOKEN else f"{option.help} ({default})."


def _parsed_type(option: Option) -> Any:
    """How the command line reads a value; what is more than that is checked with the job."""
    if option.repeatable:
        return list[str] | None
    kinds = {"true or false": bool, "whole number": int, "number": float}
    return kinds.get(option.type, str) | None


def annotation_of(option: Option) -> Any:
    """An option as typer takes it; None where the user said nothing."""
    return Annotated[
        _parsed_type(option),
        typer.Option(
            *([option.short] if option.short else []),
            option.flag,
            metavar=option.metavar or None,
            help=help_of(option),
            min=option.low if option.checked_by_parser else None,
            rich_help_panel=str(option.panel),
            show_default=False,
        ),
    ]


OnChange = annotation_of(BY_NAME["on_change"])
ConfirmUsd = annotation_of(BY_NAME["confirm_usd"])


@dataclass(frozen=True, slots=True)
class Given:
    """The shared options that the user gave, by their names."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The value of an option, None where it was not given."""
        return self.values.get(name)

    @classmethod
    def from_parsed(cls, parsed: Mapping[str, Any]) -> Given:
        """Leaves out what was not given; `--in-flight` is a number or a word."""
        values = {name: value for name, value in parsed.items() if value is not None and value != []}
        if str(values.get("in_flight", "")).isdecimal():
            values["in_flight"] = int(values["in_flight"])
        return cls(values)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that it shares with others; its parameter `options` gets what was given of them."""
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    shared = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation_of(option))
        for option in command_options(command.__name__)
    ]
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        if name != "options"
    ]

    @functools.wraps(command)
    def collecting(**parsed: Any) -> None:
        bound = parsed.pop("context").obj
        given = {parameter.name: parsed.pop(parameter.name) for parameter in shared}
        options = Given.from_parsed({**given, "endpoints": bound})
        command(options=options, **parsed)

    collecting.__dict__["__signature__"] = signature.replace(parameters=[context, *own, *shared])
    collecting.__annotations__ = {parameter.name: parameter.annotation for parameter in (context, *own, *shared)}
    return collecting


def statuses_of(text: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """`failed,invalid` as statuses.  Raises JobError for one that does not exist."""
    from rowmill.records import Status

    if text is None:
        return default
    named = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    known = [str(status) for status in Status]
    wrong = [name for name in named if name not in known]
    if wrong or not named:
        raise JobError(f"--status: no status is called '{', '.join(wrong)}'; there are {', '.join(known)}")
    return named
