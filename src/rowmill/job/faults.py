"""Faults of a job in the user's words; it knows the keys' names, not what they do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from rowmill.job.document import Document, Path
from rowmill.job.option_table import BY_KEY, parent
from rowmill.job.unbuilt import KEYS, refusal

# What other tools call it -> what it is called here.
SYNONYMS: Mapping[str, str] = {
    "api_base": "url",
    "base_url": "url",
    "endpoint": "endpoints",
    "batch_size": "in_flight",
    "concurrency": "in_flight",
    "max_concurrency": "in_flight",
    "max_concurrent": "in_flight",
    "max_parallel": "in_flight",
    "max_workers": "in_flight",
    "num_workers": "in_flight",
    "parallel": "in_flight",
    "threads": "in_flight",
    "workers": "in_flight",
    "backoff": "retry.backoff_s",
    "max_retries": "retry.attempts",
    "retries": "retry.attempts",
    "timeout": "timeout_s",
    "request_timeout": "timeout_s",
    "input": "source",
    "file": "source",
    "out": "output",
    "output_file": "output",
    "response_format": "answer.schema",
    "messages": "prompt",
    "template": "prompt",
    "system_prompt": "system",
    "instructions": "system",
    "filter": "where",
    "max_rows": "limit",
    "random_state": "seed",
    "top_p": "params.top_p",
    "stop": "params.stop",
    "rpm_limit": "rpm",
    "tpm_limit": "tpm",
}

MISSING: Mapping[str, str] = {
    "source": "missing; name the input: a file, a glob or `-`",
    "prompt": "missing; give it with -p/--prompt TEXT or @FILE, or the key `prompt`",
    "endpoints": "missing; name the model with -m/--model PRESET/NAME, or the key `endpoints`",
    "model": "missing; name the model: PRESET/NAME, or any name with a `url`",
}

KEY_NAMES = frozenset({"api_key", "apikey", "key", "token", "secret", "password", "authorization"})
KEYS_STAY_OUT = "keys never stand in a job; name the environment variable with `key_env` or a file with `key_file`"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most likely means, None where nothing is near."""
    known = set(known)
    spelled = name.lower().replace("-", "_")
    meanings = {word: _fitting(meant, known) for word, meant in SYNONYMS.items()}
    candidates = {**{word: meant for word, meant in meanings.items() if meant}, **{key: key for key in known}}
    found = difflib.get_close_matches(spelled, candidates, n=1, cutoff=0.7)
    return candidates[found[0]] if found else None


def _fitting(meant: str, known: set[str]) -> str | None:
    """`retry.attempts` where `retry` is known, `attempts` where that is known itself; else None."""
    last = meant.rpartition(".")[2]
    if last in known:
        return last
    return meant if meant.partition(".")[0] in known else None


def unknown_key(path: Path, known: Iterable[str]) -> str:
    """Why the key at the end of `path` is refused, and where it belongs or which was meant."""
    key, known = str(path[-1]), list(known)
    if key in KEYS:
        return refusal(key)
    if key.lower() in KEY_NAMES:
        return KEYS_STAY_OUT
    standard = SYNONYMS.get(key.lower(), key)
    if standard != key and standard in known:
        return f"unknown key; did you mean {standard}?"
    belongs = _where_it_belongs(standard)
    if belongs:
        return belongs if standard == key else f"unknown key; did you mean {standard}? {belongs}"
    meant = nearest(key, known)
    if meant:
        return f"unknown key; did you mean {meant}?"
    return f"unknown key; known are {', '.join(sorted(known))}"


OWNERS: Mapping[str, str] = {
    "": "the top of the job file",
    "endpoints[]": "an endpoint",
    "endpoints[].price": "the price of an endpoint",
    "endpoints[].http": "the `http` of an endpoint",
}


def _where_it_belongs(name: str) -> str | None:
    """In which mapping of a job file a key stands, with an example; None for a key of none."""
    found = next((key for key in BY_KEY if key.rpartition(".")[2] == name), None)
    if found is None:
        return None
    owner = parent(found)
    written = f"{name}: ..."
    for part in reversed(owner.split(".") if owner else []):
        inside = f"{{{written}}}"
        written = f"{part[:-2]}: [{inside}]" if part.endswith("[]") else f"{part}: {inside}"
    return f"`{name}` belongs to {OWNERS.get(owner, f'`{owner}`')}: {written}"


def describe(error: ValidationError, model: type[BaseModel], document: Document) -> list[str]:
    """One sentence a fault, each with its location; options first, then line by line."""
    seen: dict[str, None] = {}
    for fault in error.errors(include_url=False, include_context=True):
        path: Path = fault["loc"]
        if fault["type"] == "extra_forbidden":
            words = unknown_key(path, _keys_at(model, path[:-1]))
        elif fault["type"] == "missing":
            words = MISSING.get(str(path[-1]), "missing")
        else:
            path = _as_written(path, document.values)
            words = _words(fault["type"], fault["msg"], fault["input"])
        where = document.location(path)
        seen[f"{where}: {words}" if where else words] = None
    return sorted(seen, key=_line)


def _line(fault: str) -> int:
    found = re.match(r"[^:]*:(\d+): ", fault)
    return int(found[1]) if found else 0


def _as_written(path: Path, values: Any) -> Path:
    """The part of `path` that stands in the document: a prompt given as text has no `prompt[0].content`."""
    for length, part in enumerate(path):
        inside = isinstance(values, dict | list)
        try:
            values = values[part] if inside else None
        except (KeyError, IndexError, TypeError):
            inside = False
        if not inside:
            return path[:length]
    return path


def _words(kind: str, message: str, value: Any) -> str:
    match kind:
        case "string_type":
            return f"must be text, not {show(value)}"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"must be a whole number, not {show(value)}"
        case "float_type" | "float_parsing" | "finite_number":
            return f"must be a number, not {show(value)}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {show(value)}"
        case "dict_type" | "model_type" | "model_attributes_type" | "mapping_type":
            return f"must be a mapping of keys to values, not {show(value)}"
        case "tuple_type" | "list_type":
            return f"must be a list, not {show(value)}"
        case "literal_error":
            return f"must be one of {message.removeprefix('Input should be ')}, not {show(value)}"
    return message


def show(value: Any) -> str:
    """A value for a message: short, and its kind rather than its content where it is long."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= 40 else "a text"
    return "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else "that"


def _keys_at(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that `model` knows at `path`."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        field = next((f for name, f in current.model_fields.items() if (f.alias or name) == part), None)
        current = _model_in(field.annotation) if field else None
        if current is None:
            return []
    return [f.alias or name for name, f in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        found = _model_in(part)
        if found:
            return found
    return None
