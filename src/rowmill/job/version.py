"""The job's version: what is sent besides the row, and how two versions differ, in the user's words.

Endpoints added or taken away, limits, prices, time limits and outputs are no change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from hashlib import blake2b
from typing import Any

from rowmill.core.shortening import shortened
from rowmill.job.model import EndpointSpec, Job, effective_params, endpoint_names

SHOWN_CHARS = 60
SHOWN_LINES = 6
MOST_COMPARED = 2000

Definition = Mapping[str, Any]


def definition(job: Job, json_schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What is sent besides the row, JSON-serialisable: `messages`, `schema`, `models` (name -> parameters).

    A model that is asked in several ways has an entry for each, under the endpoint's name (see `version_keys`).
    `json_schema` is the compiled schema, so that two spellings of one schema are equal; without it the schema
    stands as the user wrote it.
    """
    written = job.schema_spec
    return {
        "messages": [[message.role, message.content] for message in job.messages],
        "schema": written if json_schema is None else json_schema,
        "models": {
            key: _sent_to(job, endpoint) for key, endpoint in zip(version_keys(job), job.endpoints, strict=True)
        },
    }


def version_keys(job: Job) -> list[str]:
    """For each endpoint what its version goes by: the model, so that one more server of it is no change."""
    ways: dict[str, list[dict[str, Any]]] = {}
    for endpoint in job.endpoints:
        ways.setdefault(endpoint.model, []).append(_sent_to(job, endpoint))
    names = endpoint_names(job.endpoints)
    return [
        endpoint.model if all(way == ways[endpoint.model][0] for way in ways[endpoint.model]) else name
        for endpoint, name in zip(job.endpoints, names, strict=True)
    ]


def _sent_to(job: Job, endpoint: EndpointSpec) -> dict[str, Any]:
    sent: dict[str, Any] = dict(effective_params(job, endpoint))
    if endpoint.http is not None:
        sent.update({f"http.{key}": value for key, value in endpoint.http if value is not None})
    if endpoint.prompt is not None:
        sent["prompt"] = [[message.role, message.content] for message in job.messages_of(endpoint)]
    if endpoint.parse is not None:
        sent["parse"] = endpoint.parse
    return sent


def fingerprint(definition: Definition, model: str | None = None) -> str:
    """16 hex digits over messages, schema and parameters of `model` (None: the first); not its name.

    The job's messages are no part of it where the model is asked with its own.
    """
    models = definition["models"]
    sent = dict(models[next(iter(models)) if model is None else model])
    messages = sent.pop("prompt", definition["messages"])
    text = json.dumps([messages, definition["schema"], sent], sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def difference(old: Definition, new: Definition) -> list[str]:
    """What a user must know before answers of both stand in one output; empty when nothing changed."""
    has_own_prompt = all("prompt" in sent for sent in (*old["models"].values(), *new["models"].values()))
    return [
        *([] if has_own_prompt else _messages(old["messages"], new["messages"])),
        *_schema(old["schema"], new["schema"]),
        *_models(old["models"], new["models"]),
    ]


def _messages(old: Sequence[Any], new: Sequence[Any]) -> list[str]:
    old, new = [list(turn) for turn in old], [list(turn) for turn in new]
    if old == new:
        return []
    before, after = _split_system(old), _split_system(new)
    words = []
    if before[0] != after[0]:
        change = "added" if before[0] is None else "taken away" if after[0] is None else "changed"
        words.append(f"system message {change}")
    if before[1] != after[1]:
        words.append("prompt changed")
    return words


def changed_lines(old: Definition, new: Definition) -> list[str]:
    """The first lines of what is asked that differ, as `- old` and `+ new`."""
    before, after = list(_asked_lines(old))[:MOST_COMPARED], list(_asked_lines(new))[:MOST_COMPARED]
    # Not `ndiff`, which compares every line with every other, character by character.
    found = [*unified_diff(before, after, n=0, lineterm="")][2:]  # behind the names of two files
    lines = [
        shortened(f"{line[0]} {line[1:]}", SHOWN_CHARS * 2)
        for line in found
        if line and line[0] in "+-" and line[1:].strip()
    ]
    more = [f"... {len(lines) - SHOWN_LINES} more lines differ"] if len(lines) > SHOWN_LINES else []
    return [*lines[:SHOWN_LINES], *more]


def _asked_lines(definition: Definition) -> Iterator[str]:
    own = [sent["prompt"] for sent in definition["models"].values() if "prompt" in sent]
    for turns in own if len(own) == len(definition["models"]) else [definition["messages"], *own]:
        for _, content in turns:
            yield from str(content).splitlines()


def _split_system(turns: Sequence[Any]) -> tuple[str | None, Sequence[Any]]:
    return (turns[0][1], turns[1:]) if turns and turns[0][0] == "system" else (None, turns)


def _models(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    shared = [model for model in new if model in old]
    if not shared:
        names = f"model: {', '.join(old)} -> {', '.join(new)}"
        return [names, *_params(next(iter(old.values())), next(iter(new.values())), "")]
    several = len(old) > 1 or len(new) > 1
    return [words for model in shared for words in _params(old[model], new[model], f"{model}: " if several else "")]


def _params(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str) -> list[str]:
    names = [*old, *(name for name in new if name not in old)]
    return [
        # An endpoint's own prompt is too long to show, as the job's is.
        f"{prefix}prompt changed" if name == "prompt" else f"{prefix}{name}: {_show(old, name)} -> {_show(new, name)}"
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _show(params: Mapping[str, Any], name: str) -> str:
    if name not in params:
        return "not set"
    text = json.dumps(params[name], ensure_ascii=False)
    return shortened(text, SHOWN_CHARS)


def _schema(old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if old is None or new is None:
        return ["schema added" if old is None else "schema taken away"]
    before, after = _fields(old), _fields(new)
    words = [f"field {name} added" for name in after if name not in before]
    words += [f"field {name} taken away" for name in before if name not in after]
    words += [f"field {name} changed" for name in after if name in before and before[name] != after[name]]
    if not words and list(before) != list(after):
        words = ["order of the fields"]
    return [f"schema changed: {', '.join(words)}" if words else "schema changed"]


def _fields(schema: Any) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else schema
