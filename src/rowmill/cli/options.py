"""The options that several commands share, declared once; they only collect what the user typed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer

from rowmill.errors import JobError

ASK = "What is asked"
WHOM = "Who is asked"
OUT = "Output"
ROWS = "Input and rows"
TIME = "Retries and time"

RunFile = Annotated[
    str | None,
    typer.Option("--run-file", metavar="PATH", help="The run file, if it is not OUTPUT.rowmill.", show_default=False),
]
Output = Annotated[str, typer.Argument(metavar="OUTPUT", help="The output of the run.", show_default=False)]
Statuses = Annotated[
    str | None,
    typer.Option("--status", metavar="S[,S]", help="Only rows that ended so, e.g. failed,invalid.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show errors only.")]
OnChange = Annotated[
    str | None,
    typer.Option("--on-change", metavar="keep|rerun", help="Rows answered under another job.", show_default=False),
]
EscapeFormulas = Annotated[
    bool | None,
    typer.Option(
        "--escape-formulas",
        help="Guard CSV cells that a spreadsheet would run.",
        rich_help_panel=OUT,
        show_default=False,
    ),
]
AnswerPrefix = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Put before the answer's columns.", rich_help_panel=OUT, show_default=False),
]
MetaPrefix = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="In place of the _ of _status and its like.",
        rich_help_panel=OUT,
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="jsonl, csv, tsv or parquet (by the ending); of batch files also batch or run-batch.",
        rich_help_panel=OUT,
        show_default=False,
    ),
]


Table = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        help="The table to write (or to read, where the output is a file).",
        rich_help_panel=OUT,
        show_default=False,
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="create, append, replace or upsert the table (create).",
        rich_help_panel=OUT,
        show_default=False,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The key of --mode upsert.", rich_help_panel=OUT, show_default=False),
]


def _option(*names: str, metavar: str, help: str, panel: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, show_default=False)


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What is asked, of whom, and how patiently; None where the user said nothing."""

    prompt: Annotated[
        str | None,
        _option(
            "-p", "--prompt", metavar="TEXT|@FILE", help="The prompt: {{ column }}; batch files need none.", panel=ASK
        ),
    ] = None
    system: Annotated[str | None, _option("--system", metavar="TEXT|@FILE", help="A system message.", panel=ASK)] = None
    answer: Annotated[
        str | None,
        _option(
            "--answer",
            metavar="SCHEMA",
            help="'label: good|bad, score: number', or a JSON Schema.",
            panel=ASK,
        ),
    ] = None
    model: Annotated[
        list[str] | None, _option("-m", "--model", metavar="PRESET/NAME", help="The model.", panel=WHOM)
    ] = None
    url: Annotated[str | None, _option("--url", metavar="URL", help="Its address.", panel=WHOM)] = None
    key_env: Annotated[
        str | None,
        _option("--key-env", metavar="NAME", help="The environment variable of the key.", panel=WHOM),
    ] = None
    ca_file: Annotated[str | None, _option("--ca-file", metavar="PATH", help="Certificates to trust.", panel=WHOM)] = (
        None
    )
    headers: Annotated[
        list[str] | None,
        _option("--header", metavar="'K: $NAME'", help="A header from a variable.", panel=WHOM),
    ] = None
    in_flight: Annotated[
        str | None,
        _option(
            "--in-flight", metavar="N|auto", help="Requests in flight (auto: what the server can take).", panel=WHOM
        ),
    ] = None
    rpm: Annotated[float | None, _option("--rpm", metavar="N", help="Requests a minute.", panel=WHOM)] = None
    tpm: Annotated[float | None, _option("--tpm", metavar="N", help="Tokens a minute.", panel=WHOM)] = None
    headroom: Annotated[
        float | None, _option("--headroom", metavar="R", help="Share of these limits to use (0.95).", panel=WHOM)
    ] = None
    max_tokens: Annotated[
        int | None, _option("--max-tokens", metavar="N", help="Longest reply in tokens.", panel=ASK)
    ] = None
    temperature: Annotated[
        float | None, _option("--temperature", metavar="T", help="Sampling temperature.", panel=ASK)
    ] = None
    param: Annotated[
        list[str] | None, _option("--param", metavar="KEY=JSON", help="Any other parameter.", panel=ASK)
    ] = None
    attempts: Annotated[
        int | None, _option("--attempts", metavar="N", help="Requests a row may cost (4).", panel=TIME)
    ] = None
    backoff_s: Annotated[
        float | None, _option("--backoff-s", metavar="S", help="First pause before a retry (1).", panel=TIME)
    ] = None
    max_backoff_s: Annotated[
        float | None, _option("--max-backoff-s", metavar="S", help="Longest pause (60).", panel=TIME)
    ] = None
    timeout_s: Annotated[
        float | None, _option("--timeout-s", metavar="S", help="Time for one attempt (120).", panel=TIME)
    ] = None
    connect_timeout_s: Annotated[
        float | None, _option("--connect-timeout-s", metavar="S", help="Time to connect (10).", panel=TIME)
    ] = None
    row_timeout_s: Annotated[
        float | None, _option("--row-timeout-s", metavar="S", help="Time for one row (900).", panel=TIME)
    ] = None
    max_duration_s: Annotated[
        float | None, _option("--max-duration-s", metavar="S", help="Time for the run (none).", panel=TIME)
    ] = None
    max_outage_s: Annotated[
        float | None,
        _option("--max-outage-s", metavar="S", help="Longest outage to sit out (600).", panel=TIME),
    ] = None
    budget_usd: Annotated[
        float | None,
        _option("--budget-usd", metavar="USD", help="Never spend more, all sessions together.", panel=TIME),
    ] = None
    max_failure_rate: Annotated[
        float | None,
        _option("--max-failure-rate", metavar="R", help="Stop above it, after 50 rows.", panel=TIME),
    ] = None

    def given(self) -> dict[str, Any]:
        """What the user said, by the names of `job_from_options`."""
        said: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        if isinstance(said.get("in_flight"), str) and said["in_flight"].isdecimal():
            said["in_flight"] = int(said["in_flight"])
        return {name: value for name, value in said.items() if value is not None and value != []}


@dataclass(frozen=True, slots=True)
class JobOptions(AskOptions):
    """All options of `run` and `check` that make or change a job."""

    output: Annotated[
        str | None,
        _option("-o", "--output", metavar="PATH", help="The output (SOURCE.out.jsonl), or a database.", panel=OUT),
    ] = None
    format: Format = None
    table: Table = None
    mode: Mode = None
    id: Id = None
    run_file: Annotated[
        str | None, _option("--run-file", metavar="PATH", help="The run file (OUTPUT.rowmill).", panel=OUT)
    ] = None
    answer_prefix: AnswerPrefix = None
    meta_prefix: MetaPrefix = None
    escape_formulas: EscapeFormulas = None
    query: Annotated[str | None, _option("--query", metavar="SQL", help="What to read of a database.", panel=ROWS)] = (
        None
    )
    limit: Annotated[int | None, _option("--limit", metavar="N", help="Only the first N rows.", panel=ROWS)] = None
    sample: Annotated[int | None, _option("--sample", metavar="N", help="N rows at random.", panel=ROWS)] = None
    seed: Annotated[int | None, _option("--seed", metavar="N", help="Another sample (0).", panel=ROWS)] = None
    where: Annotated[
        str | None, _option("--where", metavar="EXPR", help="Only rows for which it holds.", panel=ROWS)
    ] = None
    dedupe: Annotated[
        bool | None,
        typer.Option(
            "--dedupe",
            help="Send equal rows once (equal in what the prompt uses).",
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ] = None
    pilot: Annotated[
        int | None, _option("--pilot", metavar="N", help="First N rows at random, then a quote.", panel=ROWS)
    ] = None
    empty: Annotated[
        str | None, _option("--empty", metavar="send|skip|fail", help="For rows without text.", panel=ROWS)
    ] = None
    encoding: Annotated[
        str | None, _option("--encoding", metavar="NAME", help="Encoding of the input (UTF-8).", panel=ROWS)
    ] = None
    delimiter: Annotated[
        str | None, _option("--delimiter", metavar="C", help="Between CSV cells (by the ending).", panel=ROWS)
    ] = None


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How `export` writes."""

    format: Format = None
    table: Table = None
    mode: Mode = None
    id: Id = None
    run_file: RunFile = None
    answer_prefix: AnswerPrefix = None
    meta_prefix: MetaPrefix = None
    escape_formulas: EscapeFormulas = None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives `command` the fields of its parameter `options` (a class above) as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    collected: type[AskOptions | ExportOptions] = hints["options"]
    signature = inspect.signature(command)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
        if name != "options"
    ]
    kinds = get_type_hints(collected, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name]
        )
        for field in fields(collected)
    ]

    @functools.wraps(command)
    def collecting(**said: Any) -> None:
        options = collected(**{field.name: said.pop(field.name) for field in fields(collected)})
        command(options=options, **said)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    collecting.__dict__["__signature__"] = signature.replace(parameters=parameters + shared)
    collecting.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters + shared}
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
