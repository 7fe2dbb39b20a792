"""What one value of a job may be; each check returns the value in its normal form or says what is wrong.

No message repeats a value that may hold a secret (addresses, headers).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from rowmill.addresses import SECRET_PARAMETERS, held_secret, is_remote, is_web, without_file_scheme
from rowmill.errors import JobError
from rowmill.job.unbuilt import DATABASES, refusal

COMPRESSED = (".gz", ".zst")
READABLE = (
    *(".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt"),
    *(".xlsx", ".xlsm", ".arrow", ".arrows", ".feather", ".ipc"),
)

KINDS = ("string", "number", "integer", "boolean", "str", "float", "int", "bool")

OWN_PARAMS: Mapping[str, str] = {
    "messages": "the prompt makes the messages",
    "model": "the endpoint names the model",
    "stream": "replies are not streamed",
    "stream_options": "replies are not streamed",
}


def wrong(message: str) -> PydanticCustomError:
    """The error that carries `message` to the user."""
    return PydanticCustomError("rowmill", "{message}", {"message": message})


def between(low: float, high: float) -> AfterValidator:
    """Refuses a number outside [low, high] and names the range."""

    def check(value: Any) -> Any:
        if not low <= value <= high:
            raise wrong(f"must be between {_number(low)} and {_number(high)}, not {_number(value)}")
        return value

    return AfterValidator(check)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == value and abs(value) < 1e15 and value == int(value) else str(value)


def not_blank(text: str) -> str:
    if not text.strip():
        raise wrong("must not be empty")
    return text


def source(text: str) -> str:
    if text.startswith(DATABASES):
        raise wrong(refusal("a database as the source"))
    return not_blank(_address(text))


def output(text: str) -> str:
    if text.startswith(DATABASES):
        raise wrong(refusal("a database as the output"))
    if text == "-":
        raise wrong("must be a file: the run file stands beside it")
    if is_web(text):
        raise wrong("a web address can be read and not written")
    return not_blank(_address(text))


def _address(text: str) -> str:
    found = held_secret(text)
    if found is not None:
        raise wrong(f"must not hold {found}; the libraries that read it take keys from the environment")
    return without_file_scheme(text)


def run_file(text: str) -> str:
    if is_remote(text):
        raise wrong("must be on this machine")
    return not_blank(text)


def sheet(value: Any) -> Any:
    """A name, or a number from 1."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def template(text: str) -> str:
    from rowmill.prompts import check_template

    _with_words(check_template, text)
    return text


def expression(text: str) -> str:
    from rowmill.prompts import compile_expression

    _with_words(compile_expression, not_blank(text), "")
    return text


def _with_words(check: Any, *args: str) -> None:
    try:
        check(*args)
    except JobError as error:
        raise wrong(str(error)) from None


def turns(value: Any) -> Any:
    """A prompt as text is one user message; `{user: text}` is `{role: user, content: text}`."""
    if isinstance(value, str):
        return ({"role": "user", "content": not_blank(value)},)
    if not isinstance(value, list | tuple) or not value:
        raise wrong("must be text, or a list of messages like `- user: text`")
    return tuple(_turn(place, turn) for place, turn in enumerate(value))


def _turn(place: int, turn: Any) -> Any:
    if not isinstance(turn, dict) or {"role", "content"} <= turn.keys():
        return turn
    if len(turn) != 1:
        raise wrong(f"message {place + 1} must be one of `system: text`, `user: text`, `assistant: text`")
    [(role, content)] = turn.items()
    if role not in ("system", "user", "assistant"):
        raise wrong(f"message {place + 1} is from `{role}`; a message is from system, user or assistant")
    return {"role": role, "content": content}


def one_endpoint(value: Any) -> Any:
    if isinstance(value, dict):
        raise wrong("must be a list; put `- ` before the first key")
    if isinstance(value, list | tuple):
        if not value:
            raise wrong("must have an endpoint")
        if len(value) > 1:
            raise wrong(f"more than one endpoint: {refusal('endpoints[1]')}")
        return tuple(value)
    return value


def model_name(text: str) -> str:
    if "{{" in text or "{%" in text:
        raise wrong(refusal("a template as the model"))
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
        raise wrong("must be an address like http://localhost:8000/v1")
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
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise wrong("must be `auto` or a whole number between 1 and 100,000")
    return value


def params(value: dict[str, Any]) -> dict[str, Any]:
    for name, content in value.items():
        if name in OWN_PARAMS:
            raise wrong(f"{name} cannot be set: {OWN_PARAMS[name]}")
        if name == "n" and content != 1:
            raise wrong("n cannot be set: a row has one answer")
        if _has_template(content):
            raise wrong(f"{name}: {refusal('a template as a parameter')}")
    for name in ("max_tokens", "max_completion_tokens"):
        limit = value.get(name)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise wrong(f"{name} must be a whole number of at least 1")
    return value


def _has_template(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, dict):
        return any(_has_template(part) for part in value.values())
    return isinstance(value, Sequence) and any(_has_template(part) for part in value)


def answer_schema(value: Any) -> Any:
    if isinstance(value, str):
        not_blank(value)
    elif not isinstance(value, dict) or not value:
        raise wrong("must be a mapping: fields to kinds, or a JSON Schema; or the name of a JSON file")
    _compiled(value)
    return value


def _compiled(schema: Any) -> Any:
    from rowmill.schemas import compile_schema

    return _answers_words(lambda: compile_schema(schema))


def _answers_words(work: Callable[[], Any]) -> Any:
    """What `work` gives; its error without the key's name, which stands before it already."""
    try:
        return work()
    except JobError as error:
        words = re.sub(r"^answer\.(schema|fallback_for|fallback)(: | |\.)", "", str(error))
        raise wrong(words) from None


def names_python_model(text: str) -> bool:
    """Whether a schema given as text is `module:Model` rather than the shorthand `field: kind`."""
    found = re.fullmatch(r"[A-Za-z_][\w.]*:([A-Za-z_]\w*)", text)
    return found is not None and found[1] not in KINDS


def fallback_for(value: Any) -> Any:
    from rowmill.answers import STANDS_IN_FOR

    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise wrong("must be a list of statuses")
    strange = [str(name) for name in names if name not in tuple(map(str, STANDS_IN_FOR))]
    if strange:
        raise wrong(f"{', '.join(strange)} is none of {', '.join(STANDS_IN_FOR)}")
    return tuple(names)


def fallback(value: Any, schema: Any) -> None:
    """Refuses a fallback that does not fit the schema (None: the answer is text)."""
    from rowmill.answers import compile_fallback

    _answers_words(lambda: compile_fallback(value, None if schema is None else _compiled(schema)))


def expect(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong("must be a mapping of answer fields to the columns that hold the right values")
    return value


def expected_fields(expected: Mapping[str, str], schema: Any) -> None:
    """Refuses a field that no answer has."""
    known = ["answer"] if schema is None else [name for name, _ in _compiled(schema).columns]
    strange = [field for field in expected if field not in known]
    if strange:
        raise wrong(f"the answer has no field {', '.join(strange)}; it has {', '.join(known)}")


def encoding(text: str) -> str:
    try:
        codecs.lookup(text)
    except LookupError:
        raise wrong(f"no encoding is called '{text[:40]}'; usual are utf-8, utf-16, latin-1, cp1252, gb18030") from None
    return text


def delimiter(text: str) -> str:
    text = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(text.lower(), text)
    if len(text) != 1 or text in '"\r\n':
        raise wrong("must be one character (or `tab`), and neither a quote nor a line end")
    return text
