"""Flat options, as the command line and Python callers give them -> the shape of a job file.

It knows which option belongs to which key, and how an option is called in a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowmill.errors import JobError
from rowmill.job.document import Document, Path
from rowmill.job.option_table import BY_NAME, NEVER_SHARED, OPTIONS

LIMITS = ("in_flight", "rpm", "tpm", "input_tpm", "output_tpm", "headroom")
# Flat options that are keys of one endpoint.
ENDPOINT = tuple(option.name for option in OPTIONS if option.key == f"endpoints[].{option.name}" and option.python)


def spelled(name: str) -> str:
    """How the option for `name` is written on the command line."""
    option = BY_NAME.get(name)
    return "--" + name.replace("_", "-") if option is None else option.flag


def document_of(options: Mapping[str, Any]) -> Document:
    """Nests flat options; those that are None are left out; unreadable ones become `faults`."""
    values: dict[str, Any] = {}
    locations: dict[Path, str] = {}
    faults: list[str] = []
    for name, value in options.items():
        if value is None:
            continue
        try:
            for path, part in _spread(name, value):
                _put(values, path, part)
                if name != "endpoints":  # whose parts are known by their own paths
                    locations[path] = spelled(name)
        except ValueError as error:
            faults.append(f"{spelled(name)}: {error}")
    if options.get("endpoints") is None:
        faults += _for_each_model(values)
    return Document(values, locations, tuple(faults))


def _for_each_model(values: dict[str, Any]) -> list[str]:
    """What is said of the first model holds for each alike, but for URLs and keys; the faults."""
    endpoints = values.get("endpoints", [])
    if not isinstance(endpoints, list) or len(endpoints) < 2:
        return []
    for other in endpoints[1:]:
        if other.keys() == {"model"}:
            other.update((key, part) for key, part in endpoints[0].items() if key not in ("model", *NEVER_SHARED))
    return [_crossing(name) for name in NEVER_SHARED if name in endpoints[0]]


def _crossing(name: str) -> str:
    return (
        f"{spelled(name)} is for one endpoint, and there are several; state it at its own: endpoints: [{{model: ...}}]"
    )


def _spread(name: str, value: Any) -> list[tuple[Path, Any]]:
    if name == "model":
        return _models(value)
    if name == "headers":
        return [(("endpoints", 0, "headers"), _pairs(value, ":", str))]
    if name in ENDPOINT:
        return [(("endpoints", 0, name), value)]
    if name == "endpoints":
        return _endpoints(value)
    if name in ("param", "params"):
        return [(("params", key), part) for key, part in _pairs(value, "=", _json).items()]
    option = BY_NAME.get(name)
    if option is None or not option.key or not option.python:
        return [((name,), value)]
    return [(tuple(option.key.split(".")), value)]


def _models(value: Any) -> list[tuple[Path, Any]]:
    models = [value] if isinstance(value, str) else list(value)
    return [(("endpoints", index, "model"), model) for index, model in enumerate(models)]


def _endpoints(value: Any) -> list[tuple[Path, Any]]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(spec, Mapping) for spec in value):
        raise ValueError("must be a list of mappings, one an endpoint")
    return [
        (
            ("endpoints", index, str(key)),
            _pairs(part, ":", str) if key == "headers" and isinstance(part, list) else part,
        )
        for index, spec in enumerate(value)
        for key, part in spec.items()
    ]


def _put(values: dict[str, Any], path: Path, part: Any) -> None:
    key = str(path[0])
    if key == "endpoints":
        endpoints = values.setdefault("endpoints", [])
        while len(endpoints) <= int(path[1]):
            endpoints.append({})
        endpoints[path[1]][path[2]] = part
    elif len(path) == 2:
        values.setdefault(key, {})[path[1]] = part
    else:
        values[key] = part


def _pairs(value: Any, sign: str, read: Callable[[str], Any]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    texts: Sequence[str] = [value] if isinstance(value, str) else value
    pairs = {}
    for text in texts:
        name, found, content = text.partition(sign)
        if not found or not name.strip():
            raise ValueError("must look like " + ("'NAME: $VARIABLE'" if sign == ":" else "KEY=JSON"))
        pairs[name.strip()] = read(content.strip())
    return pairs


def _json(text: str) -> Any:
    """A value as JSON; a bare word is text."""
    try:
        return json.loads(text)
    except ValueError:
        if (text[:1] in '{["' and text[:2] not in ("{{", "{%")) or not text:
            raise ValueError("the value is not valid JSON") from None
        return text


def overlay(below: Document, above: Document) -> Document:
    """`above` over `below`: parameters, retry and answer are merged key by key, everything else is replaced.

    A model given above brings its own URL and key; other endpoint options change the endpoint below.
    """
    if below.faults or above.faults:
        raise JobError(*below.faults, *above.faults)
    values = dict(below.values)
    for key, part in above.values.items():
        if key == "endpoints":
            values[key] = _over_endpoints(values.get(key), part)
        elif key in ("params", "retry", "answer") and isinstance(values.get(key), dict):
            values[key] = {**values[key], **part}
        else:
            values[key] = part
    if "system" in above.values and "prompt" not in above.values:
        values["prompt"] = _without_system(values.get("prompt"))
    if "prompt" in above.values and "system" not in above.values and _first_is_system(above.values["prompt"]):
        values.pop("system", None)
    return Document(values, {**below.locations, **above.locations})


def _over_endpoints(below: Any, above: list[dict[str, Any]]) -> Any:
    if not isinstance(below, list) or not all(isinstance(endpoint, dict) for endpoint in below) or not below:
        return above
    if "model" in above[0]:
        kept = {key: below[0][key] for key in LIMITS if key in below[0]}
        return [{**kept, **endpoint} for endpoint in above]
    if len(below) > 1 and (crossing := [_crossing(name) for name in NEVER_SHARED if name in above[0]]):
        raise JobError(*crossing)
    return [{**endpoint, **above[0]} for endpoint in below]


def _first_is_system(turns: Any) -> bool:
    return (
        isinstance(turns, list)
        and bool(turns)
        and isinstance(turns[0], dict)
        and ("system" in turns[0] or turns[0].get("role") == "system")
    )


def _without_system(turns: Any) -> Any:
    return turns[1:] if _first_is_system(turns) else turns
