"""What one value of a job may be; each check returns the value in its normal form or says what is wrong.

No message repeats a value that may hold a secret (URLs, headers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from rowmill.core.names import databases
from rowmill.core.names.encodings import check_encoding
from rowmill.core.names.files import (
    SECRET_PARAMETERS,
    SEVERAL,
    held_secret,
    is_remote,
    is_web,
    source_parts,
    without_file_scheme,
)
from rowmill.core.names.formats import BATCH_READABLE, compression_of
from rowmill.core.requests.max_tokens import MAX_TOKENS_NAMES
from rowmill.errors import JobError
from rowmill.job.option_table import BY_KEY
from rowmill.job.unbuilt import DATABASES, refusal

MOST_ENDPOINTS = 100

OWN_PARAMS: Mapping[str, str] = {
    "messages": "the prompt makes the messages",
    "model": "the endpoint names the model",
    "stream": "replies are not streamed",
    "stream_options": "replies are not streamed",
}


def wrong(message: str) -> PydanticCustomError:
    """The error that carries `message` to the user."""
    return PydanticCustomError("rowmill", "{message}", {"message": message})


def in_range(key: str) -> AfterValidator:
    """Refuses a number outside the range of a job file's `key`, and names the range."""
    low, high = BY_KEY[key].range

    def check(value: Any) -> Any:
        if not low <= value <= high:
            raise wrong(f"must be between {_number(low)} and {_number(high)}, not {_number(value)}")
        return value

    return AfterValidator(check)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == value and abs(value) < 1e15 and value == int(value) else str(value)


def may_be_batch(source: str) -> bool:
    """Whether a source may hold the lines of a batch file, by its name; what it holds is seen when it is read."""
    name = source.lower()
    name = name.removesuffix(compression_of(name))
    return name == "-" or name.endswith(BATCH_READABLE)


def not_blank(text: str) -> str:
    if not text.strip():
        raise wrong("must not be empty")
    return text


def several_sources(value: object) -> object:
    """A list of files is one source."""
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return SEVERAL.join(value)
    return value


def source(text: str) -> str:
    parts = source_parts(text)
    if len(parts) > 1:
        for part in parts:
            if part == "-" or databases.is_database(part) or part.startswith(DATABASES):
                raise wrong(f"{part} cannot be one of several files; run it by itself")
            if part.lower().endswith((".yaml", ".yml")):
                raise wrong(f"{part} is a job file, which is run by itself, not one of several files of rows")
        return SEVERAL.join(not_blank(_file_name(part)) for part in parts)
    if text.startswith(DATABASES):
        raise wrong(refusal("such a database as the source"))
    return _database(text) if databases.is_database(text) else not_blank(_file_name(text))


def output(text: str) -> str:
    if text.startswith(DATABASES):
        raise wrong(refusal("such a database as the output"))
    if text == "-":
        raise wrong("must be a file: the run file stands beside it")
    if is_web(text):
        raise wrong("a web page can be read and not written")
    return _database(text) if databases.is_database(text) else not_blank(_file_name(text))


def _database(text: str) -> str:
    try:
        return text if isinstance(text, databases.DatabaseUrl) else databases.database_url(text)
    except ValueError as error:
        raise wrong(str(error)) from None


def _file_name(text: str) -> str:
    found = held_secret(text)
    if found is not None:
        raise wrong(f"must not hold {found}; the libraries that read it take keys from the environment")
    return without_file_scheme(text)


def table(text: str) -> str:
    try:
        databases.table(text)
    except ValueError as error:
        raise wrong(str(error)) from None
    return text


def database_key(name: str, value: Any, seen: Mapping[str, Any]) -> None:
    """Refuses a key that does not fit the kinds of source and output; `seen` are the keys before it."""
    if not {"source", "output"} <= seen.keys():
        return  # they are wrong themselves
    reads, writes = (isinstance(seen[end], databases.DatabaseUrl) for end in ("source", "output"))
    given = value not in (None, "create")
    match name:
        case "query" if given and not reads:
            raise wrong("is for a database as the source")
        case "query" if not given and reads and writes:
            raise wrong('missing; the table is the output\'s: say what to read with --query "SELECT * FROM ..."')
        case "table" if given and not reads and not writes:
            raise wrong("is for a database as the source or the output")
        case "table" if reads and not writes and given == (seen.get("query") is not None):
            raise wrong("a database as the source needs one of --query and --table")
        case "table" if writes and not given:
            raise wrong("missing; a database as the output needs --table, the table to write")
        case "mode" | "id" if given and not writes:
            raise wrong("is for a database as the output")
        case "id" if writes and given != (seen.get("mode") == "upsert"):
            raise wrong(databases.UPSERT_NEEDS)
        case "format" | "split_rows" if given and writes:
            raise wrong("is for files; a database has its own")
        case "encoding" | "delimiter" if given and reads:
            raise wrong("is for files of text")
        case "sheet" if given and reads:
            raise wrong("is for workbooks")


def run_file(text: str) -> str:
    if is_remote(text):
        raise wrong("must be on this machine")
    return not_blank(text)


def sheet(value: Any) -> Any:
    """A name, or a number from 1."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def template(text: str) -> str:
    from rowmill.core.requests.prompts import check_template

    _with_words(check_template, text)
    return text


def expression(text: str) -> str:
    from rowmill.core.requests.expressions import compile_expression

    _with_words(compile_expression, not_blank(text), "")
    return text


def _with_words(check: Any, *args: Any) -> None:
    try:
        check(*args)
    except JobError as error:
        raise wrong(str(error)) from None


def turns(value: Any) -> Any:
    """A prompt as text is one user message; `{user: text}` is `{role: user, content: text}`."""
    if isinstance(value, str):
        return ({"role": "user", "content": not_blank(value)},)
    if value == ():  # none given: the lines of a batch file say what is asked
        return ()
    if not isinstance(value, list | tuple) or not value:
        raise wrong("must be text, or a list of messages like `- user: text`")
    return tuple(_turn(index, turn) for index, turn in enumerate(value))


def _turn(index: int, turn: Any) -> Any:
    if not isinstance(turn, dict) or {"role", "content"} <= turn.keys():
        return turn
    if len(turn) != 1:
        raise wrong(f"message {index + 1} must be one of `system: text`, `user: text`, `assistant: text`")
    [(role, content)] = turn.items()
    if role not in ("system", "user", "assistant"):
        raise wrong(f"message {index + 1} is from `{role}`; a message is from system, user or assistant")
    return {"role": role, "content": content}


def endpoints(value: Any) -> Any:
    if isinstance(value, dict):
        raise wrong("must be a list; put `- ` before the first key")
    if isinstance(value, list | tuple):
        if not value:
            raise wrong("must have an endpoint")
        if len(value) > MOST_ENDPOINTS:
            raise wrong(f"{len(value)} endpoints; there may be {MOST_ENDPOINTS}")
        return tuple(value)
    return value


def cascade(value: Any) -> Any:
    """Statuses that send a row on to the next endpoint."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise wrong("must be a list of statuses")
    return chosen(names, BY_KEY["endpoints[].cascade"].choices)


def function_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise wrong("must name a function as `module:function`")
    return text


def model_name(text: str) -> str:
    if "{{" in text or "{%" in text:
        template(text)
    if text != text.strip():
        raise wrong("must not begin or end with a space")
    return not_blank(text)


def url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        known = False
    if not known or any(sign.isspace() for sign in text):
        raise wrong("must be a URL like http://localhost:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise wrong("must not hold a user name or password; name the key's variable with `key_env`")
    held = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if name.lower() in SECRET_PARAMETERS]
    if held:
        raise wrong(f"must not hold a key (`{held[0]}`); name the key's variable with `key_env`")
    return text


def variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise wrong("must be the name of an environment variable, not the key itself")
    return text


def headers(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong("must be a mapping of header names to `$NAME` of an environment variable")
    for name, content in value.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise wrong("holds a name that no HTTP header can have")
        if not isinstance(content, str) or not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", content):
            raise wrong(f"{name}: the value must be $NAME, an environment variable; values never stand in a job")
    return value


def in_flight(value: Any) -> Any:
    if value == "auto":
        return value
    low, high = BY_KEY["endpoints[].in_flight"].range
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise wrong(f"must be `auto` or a whole number between {_number(low)} and {_number(high)}")
    return value


def job_params(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Bodies of a batch file name their model and may ask for a stream: there both may be set for all of them."""
    if info.data.get("prompt") == ():
        model = value.get("model")
        if model is not None and not (isinstance(model, str) and model.strip()):
            raise wrong("model must be the name that is sent in every body")
        return _checked_params(value, OWN_PARAMS.keys() - {"model", "stream", "stream_options"})
    return params(value)


def params(value: dict[str, Any]) -> dict[str, Any]:
    return _checked_params(value, OWN_PARAMS.keys())


def _checked_params(value: dict[str, Any], refused: Set[str]) -> dict[str, Any]:
    from rowmill.core.requests.expressions import is_template

    for name, content in value.items():
        if name in refused:
            raise wrong(f"{name} cannot be set: {OWN_PARAMS[name]}")
        if name == "n" and content != 1:
            raise wrong("n cannot be set: a row has one answer")
    _with_words(_compile_params, value)
    for name in MAX_TOKENS_NAMES:
        limit = value.get(name)
        if isinstance(limit, str) and is_template(limit):
            continue
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise wrong(f"{name} must be a whole number of at least 1")
    return value


def _compile_params(value: dict[str, Any]) -> None:
    from rowmill.core.requests.expressions import compile_value

    compile_value(value)


def chosen(names: Sequence[Any], choices: Sequence[str]) -> tuple[str, ...]:
    strange = [str(name) for name in names if name not in choices]
    if strange:
        raise wrong(f"{', '.join(strange)} is none of {', '.join(choices)}")
    return tuple(names)


def encoding(text: str) -> str:
    try:
        check_encoding(text)
    except LookupError as error:
        raise wrong(str(error)) from None
    return text


def delimiter(text: str) -> str:
    text = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(text.lower(), text)
    if len(text) != 1 or text in '"\r\n':
        raise wrong("must be one character (or `tab`), and neither a quote nor a line end")
    return text
