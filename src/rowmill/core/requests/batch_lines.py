"""A line of a batch file -> the request that it spells; must not know endpoints, files or how replies look.

A batch file is JSON lines of `custom_id`, `method`, `url` and `body`, as the Batch API and vLLM's `run-batch` take it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rowmill.core.requests.prompts import TemplateFault
from rowmill.core.rows.chunks import encode_json
from rowmill.core.shortening import shortened
from rowmill.records import Body, Request, Row

ID = "custom_id"
# What is sent, and so what a row is known again by.
COLUMNS = ("body", "method", "url")
MARKS = frozenset({ID, "url", "body"})

# Where a body may go -> what limits the tokens of an answer there, the name to set first.
PATHS: Mapping[str, tuple[str, ...]] = {
    "/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/embeddings": (),
    "/moderations": (),
    "/score": (),
    "/rerank": (),
}

_VERSION = re.compile(r"^/v\d+(?=/)")
# Replies to these do not come whole.
_IN_PIECES: Mapping[str, str] = {
    "stream": "replies are not streamed; take it out of the body, or add --param stream=false",
    "background": "replies are waited for; take it out of the body, or add --param background=false",
}


def looks_like_batch(columns: Iterable[str]) -> bool:
    """Whether a row with these columns is a line of a batch file."""
    return MARKS.issubset(columns)


@dataclass(frozen=True, slots=True)
class BatchBodies:
    """What is asked is the row's body; implements `ports.RequestBuilder`.

    Parameters of the job go over those of every body.  `bounded` gives a body its bounds under a budget, or says why
    it has none.
    """

    bounded: Callable[[Body, Mapping[str, object]], Body | str] | None = None

    @property
    def columns(self) -> frozenset[str]:
        """What is sent."""
        return frozenset(COLUMNS)

    def check_columns(self, columns: Iterable[str]) -> None:
        """What a line lacks is that line's fault, and not the job's."""

    def request(self, row: Row, params: Mapping[str, object]) -> Request:
        """The body, checked.  Raises TemplateFault."""
        values = row.values
        path = _path(values)
        body = values.get("body")
        if not isinstance(body, Mapping):
            raise TemplateFault(_not_there(values, "body", "an object"))
        if params:
            body = _over(body, params, path)
        for name, why in _IN_PIECES.items():
            if body.get(name):
                raise TemplateFault(f"body.{name} is set, and {why}")
        model = body.get("model")
        if model is not None and (not isinstance(model, str) or not model.strip()):
            raise TemplateFault("body.model is not the name of a model")
        made = Body(path, encode_json(body), model, _most_tokens(body, path))
        return Request((), params, made if self.bounded is None else _fit(self.bounded(made, body)))

    def is_blank(self, row: Row) -> bool:
        """A body is never blank."""
        return False


def _fit(bounded: Body | str) -> Body:
    if isinstance(bounded, str):
        raise TemplateFault(bounded)
    return bounded


def _path(values: Mapping[str, object]) -> str:
    method = values.get("method")
    if method is not None and (not isinstance(method, str) or method.upper() != "POST"):
        raise TemplateFault(f"method is {_shown(method)}; only POST can be sent")
    url = values.get("url")
    if not isinstance(url, str):
        raise TemplateFault(_not_there(values, "url", "text"))
    path = _VERSION.sub("", url)
    if path not in PATHS:
        known = ", ".join(f"/v1{path}" for path in PATHS)
        raise TemplateFault(f"url is {_shown(url)}; bodies can be sent to {known}")
    return path


def _over(body: Mapping[str, Any], params: Mapping[str, object], path: str) -> Mapping[str, Any]:
    """The body with the job's parameters over its own; `max_tokens` under the name that limits answers there."""
    given = dict(params)
    limits = PATHS[path]
    if "max_completion_tokens" in given:  # the newer name of the same limit; both are refused
        body = {name: part for name, part in body.items() if name != "max_tokens"}
    if "max_tokens" in given and "max_tokens" not in body:
        limit = given.pop("max_tokens")
        if limits:
            given[next((name for name in limits if name in body), limits[-1])] = limit
    return {**body, **given}


def _most_tokens(body: Mapping[str, Any], path: str) -> int | None:
    """The most tokens that all answers to the body can have, None where nothing limits them."""
    limits = PATHS[path]
    if not limits:
        return 0
    stated = [body[name] for name in limits if type(body.get(name)) is int]
    if not stated:
        return None
    answers = max([body[name] for name in ("n", "best_of") if type(body.get(name)) is int], default=1)
    prompts = body.get("prompt")
    # A list of prompts, and not one prompt that is a list of tokens.
    if path == "/completions" and isinstance(prompts, list) and not all(type(part) is int for part in prompts):
        answers *= len(prompts)
    return int(max(stated)) * max(answers, 1)


def _not_there(values: Mapping[str, object], name: str, wanted: str) -> str:
    if values.get(name) is None:
        return f"{name} is missing; a line of a batch file has custom_id, method, url and body"
    return f"{name} must be {wanted}, not {_shown(values[name])}"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else encode_json(value).decode()
    return shortened(text, 60)
