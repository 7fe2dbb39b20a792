"""Writes docs/reference/ from the code: options, job file, columns, statuses, failure kinds, exit codes,
presets, events.

Run it with `make reference`; a test holds the committed pages to what it makes.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from rowmill import events
from rowmill.cli import app
from rowmill.core.rows.outputs.columns import AnswerColumn, OutputColumns
from rowmill.engine.circuit_breaker import BREAKER_ATTEMPTS, BREAKER_ROWS, GONE_ROWS
from rowmill.errors import ExitCode, StopReason, exit_code
from rowmill.failure_kinds import TABLE, Blame, KindRules
from rowmill.job.option_table import BY_NAME, OPTIONS, Option, command_options, parent
from rowmill.providers.presets import load_presets
from rowmill.records import GOOD, LaneFigures, Status

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- Made by `make reference`; do not edit. -->"

STATUSES: Mapping[str, str] = {
    "ok": "The reply is a valid answer.",
    "fallback": "The fallback is the answer; `_error` says in place of what.",
    "invalid": "There is a reply, but it is no valid answer, also after repair.",
    "truncated": "The reply ended at the token limit. What there is of it is kept.",
    "filtered": "The provider's content filter refused.",
    "refused": "The model declined.",
    "failed": "No reply: the attempts are used up, or the fault is one that no retry mends; also input lines that "
    "cannot be read and templates that cannot be rendered.",
    "skipped": "Nothing was sent, as `empty: skip` asks.",
}

COLUMNS: Mapping[str, str] = {
    "_row": "The row's number in the input, from 0.",
    "_status": "How the row ended; see [statuses](statuses.md).",
    "_error": "What went wrong, null where nothing did.",
    "_endpoint": "The endpoint that answered.",
    "_model": "The model that the reply names.",
    "_attempts": "Requests sent; those refused by a rate limit are not counted.",
    "_latency_s": "Seconds from sending to the last byte, of the attempt that gave the answer.",
    "_input_tokens": "Tokens of the prompt, over all attempts.",
    "_output_tokens": "Tokens of the reply, over all attempts.",
    "_cost_usd": "What all attempts cost, in USD; null where it is unknown.",
    "_reasoning": "The model's reasoning; only where some row has one.",
    "_duplicate_of": "With `dedupe`: the `_row` that was sent in this row's place; only where there are such rows.",
}

STOPS: Mapping[str, str] = {
    "finished": "Every row has ended.",
    "budget": "The next request might cost more than `budget_usd` leaves.",
    "quota": "The provider says that money or quota is used up.",
    "credentials": "The provider does not accept the key.",
    "model_missing": "The provider has no such model.",
    "hopeless": "The first rows all failed alike.",
    "tls": "The server's certificate is not trusted; `ca_file` names one to trust.",
    "failure_rate": "A larger share of rows failed than `max_failure_rate` allows.",
    "outage": "No endpoint has answered for `max_outage_s`.",
    "max_duration": "`max_duration_s` is over.",
    "disk_full": "The run file cannot grow.",
    "source": "The input broke off while it was read.",
    "output": "Every row is answered, but the output could not be written; `rowmill export` writes it.",
    "declined": "The quote of the pilot was not approved.",
    "interrupted": "Ctrl-C. Replies in flight were awaited for up to 10 s and saved; a second Ctrl-C stops at once.",
    "terminated": "The process was told to end (SIGTERM); as with Ctrl-C.",
}

EXITS: Mapping[str, str] = {
    "0": "Every row ended well: `ok`, `fallback` or `skipped`.",
    "1": "A bug in Rowmill.",
    "2": "Nothing was sent: the usage, the job or the input is wrong, the run file is locked or damaged, or the job "
    "has changed.",
    "3": "Finished, and some row ended badly.",
    "4": "Stopped early. The same command goes on.",
    "130": "Interrupted by Ctrl-C. The same command goes on.",
    "143": "Terminated by SIGTERM. The same command goes on.",
}

USES_ATTEMPT: Mapping[Blame, str] = {
    Blame.ROW: "yes",
    Blame.SERVER: "yes, but in an outage",
    Blame.ROW_OR_LANE: "once it is the row's own",
    Blame.LANE: "no",
    Blame.USER: "no",
}

SUMMARY: Sequence[tuple[str, str, str]] = (
    ("rows", "whole number", "Rows of the input, or those done while its length is unknown."),
    ("counts", "object", "Rows by status."),
    ("requests", "whole number", "Requests sent, over all sessions."),
    ("seconds", "number, seconds", "How long this session took."),
    ("rows_per_s", "number, rows a second", "The mean of this session."),
    ("input_tokens", "whole number, tokens", "Over all attempts of all sessions."),
    ("output_tokens", "whole number, tokens", "Over all attempts of all sessions."),
    ("cost_usd", "number or null, USD", "Over all attempts of all sessions; null where it is unknown."),
    (
        "latency_s",
        "object, seconds",
        "`p50`, `p95`, `p99` of attempts that gave an answer; null before one did.",
    ),
    ("retries", "object", "Repeated requests by cause."),
    ("throttles", "object", "Requests that were refused by a rate limit, by cause."),
    ("errors", "list of objects", "The three most frequent errors of rows that ended badly: `error`, `count` of rows."),
    ("accuracy", "object or null", "What `answer.expect` found; null where it is not asked for."),
    ("output", "text or null", "The output; null where it was not written."),
    ("failures", "text or null", "The file of rows that ended badly; null where there are none."),
    ("run_file", "text", "The run file."),
    ("exit_code", "whole number", "See [exit codes](exit-codes.md)."),
    ("lanes", "list of objects", "One for each endpoint; see below."),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *cells)]


def page(title: str, *blocks: Iterable[str]) -> str:
    """A page of blocks, an empty line between them."""
    return "\n\n".join([f"# {title}", MADE, *("\n".join(block) for block in blocks)]) + "\n"


def meanings(names: Iterable[str], words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each name with its meaning.  Raises ValueError where one has none, or a meaning has no name."""
    listed = list(names)
    if set(listed) != set(words):
        raise ValueError(f"names and meanings differ: {sorted(set(listed) ^ set(words))}")
    return [(name, words[name]) for name in listed]


def code(text: str) -> str:
    """Text as code; nothing for an empty one."""
    return f"`{text}`" if text else ""


# --- options and job file -------------------------------------------------------------------------------------


def options_page() -> str:
    """Every flag of every command, and Python's arguments."""
    blocks: list[list[str]] = [["Keys lead to [the job file](job-file.md), where types and ranges are."]]
    commands: Mapping[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        shared = {option.flag: option for option in command_options(name)}
        blocks.append([f"## rowmill {name}"])
        blocks.append([command.help or ""])
        if name == "simulate":
            blocks.append(["Its options: `rowmill simulate --help`."])
            continue
        rows = [_flag_row(parameter, shared) for parameter in command.params]
        blocks.append(table(("option", "job file", "Python", "meaning"), rows))
    blocks.append(["## Python arguments"])
    blocks.append(["`call` is `map` with a function; a dash means that it is no part of a job file."])
    arguments = [option for option in OPTIONS if option.python]
    rows = [(code(option.name), code(option.key) or "-", _functions(option), _sentence(option)) for option in arguments]
    blocks.append(table(("argument", "job file", "taken by", "meaning"), rows))
    return page("Options", *blocks)


def _functions(option: Option) -> str:
    return ", ".join(name for name in ("run", "map", "call") if name in option.python)


def _flag_row(parameter: Any, shared: Mapping[str, Option]) -> tuple[str, str, str, str]:
    if not parameter.opts[0].startswith("-"):
        return code(parameter.metavar or parameter.name.upper()), "", "", parameter.help or ""
    option = next((shared[flag] for flag in parameter.opts if flag in shared), None)
    metavar = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
    spelled = code("/".join(parameter.opts) + metavar)
    if option is None:
        return spelled, "", "", parameter.help or ""
    python = option.name if option.python else ""
    return spelled, code(option.key), code(python), parameter.help or ""


def _sentence(option: Option) -> str:
    return f"{option.help}. {option.note}".strip()


def _range(option: Option) -> str:
    if option.choices:
        return ", ".join(map(code, option.choices))
    if option.low is None or option.high is None:
        return ""
    unit = f" {option.unit}" if option.unit else ""
    return f"{_number(option.low)} to {_number(option.high)}{unit}"


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def job_file_page() -> str:
    """Every key of a job file."""
    intro = [
        "A job file is YAML. Unknown keys are refused; a key without a value means its default. Paths are relative to",
        "the job file's folder. Each example may stand in a job file as it is, below the key in the heading.",
    ]
    whole = [
        "```yaml",
        "source: reviews.csv",
        'prompt: "Is this review positive? {{ text }}"',
        "answer:",
        "  schema: {sentiment: positive|negative}",
        "endpoints:",
        "  - model: openai/gpt-4o-mini",
        "    rpm: 500",
        "output: labels.parquet",
        "```",
    ]
    blocks: list[list[str]] = [intro, whole]
    for key, title in (
        ("", "At the top"),
        ("answer", "answer"),
        ("retry", "retry"),
        ("params", "params"),
        ("endpoints[]", "endpoints"),
        ("endpoints[].price", "endpoints[].price"),
        ("endpoints[].http", "endpoints[].http"),
    ):
        blocks.append([f"## {title}"])
        inside = sorted((option for option in OPTIONS if option.key and parent(option.key) == key), key=_order)
        blocks.append(table(("key", "type", "range", "default", "example", "meaning"), map(_key_row, inside)))
        if key == "":
            blocks.append(["`answer` and `retry` are mappings, whose keys are below."])
        if key == "params":
            blocks.append(["Any other parameter is sent as it stands."])
    return page("Job file", *blocks)


def _order(option: Option) -> tuple[bool, int]:
    firsts = ("source", "prompt", "system", "endpoints", "model", "url")
    name = option.key.rpartition(".")[2]
    return name not in firsts, firsts.index(name) if name in firsts else 0


def _key_row(option: Option) -> tuple[str, ...]:
    name = option.key.rpartition(".")[2]
    default = option.shown_default
    if isinstance(option.default, bool):
        default = "true" if option.default else "false"
    elif not option.default_words and default:
        default = code(default)
    return code(name), option.type, _range(option), default or "none", code(option.example), _sentence(option)


# --- what comes out -------------------------------------------------------------------------------------------


def output_columns_page() -> str:
    """The columns of an output."""
    columns = OutputColumns((), (AnswerColumn("answer", "string"),), with_reasoning=True, with_duplicates=True)
    kinds = dict(zip(columns.meta_names, columns.meta_kinds, strict=True))
    rows = [(code(name), kinds[name], words) for name, words in meanings(columns.meta_names, COLUMNS)]
    first = [
        "First the input's columns, unchanged; then the answer's: one for each field of the schema, or `answer` where",
        "there is none; then Rowmill's own, in this order. `meta_prefix` changes their `_`, `answer_prefix` is put",
        "before the answer's names.",
    ]
    return page("Output columns", first, table(("column", "type", "meaning"), rows))


def statuses_page() -> str:
    """How rows end."""
    good = [str(status) for status in Status if status in GOOD]
    rows = [
        (code(name), "no" if name in good else "yes", words) for name, words in meanings(map(str, Status), STATUSES)
    ]
    first = ["A row without a status is pending. Rows that ended badly also go to `OUTPUT.failed.jsonl`."]
    return page("Statuses", first, table(("status", "ended badly", "meaning"), rows))


def failure_kinds_page() -> str:
    """What each kind of failure means, and what follows."""
    first = [
        "What went wrong with one attempt: the run file keeps it with the attempt, and the summary counts retries by",
        "it. The [status](statuses.md) is the one with which a row ends when nothing more is tried. A server that says",
        "`x-should-retry` decides itself whether its refusal is retried. A failure that may be the row's or the",
        "lane's is the row's own when others succeed while it goes on failing. What may be billed has an unknown cost.",
    ]
    head = ("kind", "meaning", "retried", "uses an attempt", "may be billed", "the row ends as", "the lane")
    return page("Failure kinds", first, table(head, map(_kind_row, TABLE)))


def _kind_row(rules: KindRules) -> tuple[str, ...]:
    words = {True: "yes", False: "no"}
    return (
        code(rules.kind),
        rules.meaning,
        words[rules.is_retried],
        USES_ATTEMPT[rules.blame],
        words[rules.may_be_billed],
        "pending" if rules.blame in (Blame.USER, Blame.LANE) else code(rules.ends_as),
        _lane_then(rules),
    )


def _lane_then(rules: KindRules) -> str:
    if rules.disables is not None:
        when = "is disabled" if rules.blame is Blame.USER else f"is disabled when {GONE_ROWS} rows meet it"
        return f"{when}: {code(rules.disables)}"
    if rules.pauses:
        return "pauses"
    if rules.blame is Blame.SERVER:
        return f"pauses when {BREAKER_ATTEMPTS} attempts of {BREAKER_ROWS} rows fail"
    return f"pauses when {GONE_ROWS} rows meet it" if rules.blame is Blame.ROW_OR_LANE else "goes on"


def exit_codes_page() -> str:
    """Exit codes, and why a run stops."""
    codes = meanings((str(int(code)) for code in ExitCode), EXITS)
    stops = [(code(name), _codes_of(StopReason(name)), words) for name, words in meanings(map(str, StopReason), STOPS)]
    return page(
        "Exit codes and stop reasons",
        table(("exit code", "meaning"), codes),
        ["## Stop reasons"],
        ["They stand in the run file, and as `reason` in `rowmill status --json`."],
        table(("reason", "exit code", "meaning"), stops),
    )


def _codes_of(reason: StopReason) -> str:
    return "0, or 3 where rows ended badly" if reason is StopReason.FINISHED else str(int(exit_code(reason)))


def presets_page() -> str:
    """Known providers."""
    counted = {"max_tokens": "`max_tokens`, when a request is admitted", "used": "the tokens that were used"}
    rows = [
        (
            code(name),
            code(str(preset.get("url", ""))) or "give one with `url`",
            code(str(preset.get("key_env", ""))) or "none",
            str(preset.get("key", "required")) if preset.get("key_env") else "-",
            counted[str(preset.get("counts", "used"))],
        )
        for name, preset in load_presets().items()
    ]
    first = ["A model is named `PRESET/NAME`, for example `openai/gpt-4o-mini`."]
    return page("Presets", first, table(("preset", "url", "key variable", "key", "its token limit counts"), rows))


def events_page() -> str:
    """What observers are told, and the object of `--json`."""
    blocks: list[list[str]] = [
        ["## The object of `--json`"],
        ["`rowmill run --json` and `rowmill retry --json` print it on one line of standard output at the end."],
        table(("key", "type", "meaning"), [(code(name), kind, words) for name, kind, words in SUMMARY]),
        ["A lane is what runs one endpoint. Keys with `_per_s` are a second's, over the session once it has ended."],
        table(("key of a lane", "type"), [(code(f.name), _type(f.type)) for f in dataclasses.fields(LaneFigures)]),
        ["## Events"],
        [
            "Observers are told these. From Python the logger `rowmill` writes notices and lanes that are out as",
            "warnings, pauses as information.",
        ],
    ]
    rows = [
        (
            code(event.__name__),
            ", ".join(f"{code(f.name)} ({_type(f.type)})" for f in dataclasses.fields(event)),
            " ".join((event.__doc__ or "").split()),
        )
        for event in typing.get_args(events.Event)
    ]
    blocks.append(table(("event", "fields", "meaning"), rows))
    return page("Events and the --json object", *blocks)


def _type(annotation: Any) -> str:
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    parts = str(annotation).split(" | ")
    named = [words.get(part, "null" if part == "None" else "object" if "Mapping" in part else part) for part in parts]
    return " or ".join(named)


def index_page() -> str:
    """What stands where."""
    return page(
        "Reference",
        [
            "- [Options](options.md): every flag of every command, and Python's arguments",
            "- [Job file](job-file.md): every key, with type, range, default and an example",
            "- [Output columns](output-columns.md)",
            "- [Statuses](statuses.md)",
            "- [Failure kinds](failure-kinds.md): what each means, and what follows",
            "- [Exit codes and stop reasons](exit-codes.md)",
            "- [Presets](presets.md): known providers",
            "- [Events and the --json object](events.md)",
        ],
    )


def pages() -> dict[str, str]:
    """Every page, by its file's name."""
    assert {option.name for option in OPTIONS} == set(BY_NAME)
    return {
        "README.md": index_page(),
        "options.md": options_page(),
        "job-file.md": job_file_page(),
        "output-columns.md": output_columns_page(),
        "statuses.md": statuses_page(),
        "failure-kinds.md": failure_kinds_page(),
        "exit-codes.md": exit_codes_page(),
        "presets.md": presets_page(),
        "events.md": events_page(),
    }


def main() -> None:
    """Writes the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(pages())} pages written to {FOLDER}\n")


if __name__ == "__main__":
    main()
