"""The other APIs of an OpenAI-compatible server: what is asked there, and how the answers look.

Knows nothing of faults, limits or sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec

from rowmill.simulator.behaviour import ReadRequest, token_of

SHAPES = ("completions", "responses", "embeddings", "score", "rerank", "moderations")
DIMENSIONS = 4

_encode = msgspec.json.encode


class _Body(msgspec.Struct):
    """The fields of all these APIs' bodies that say what is asked."""

    model: str = ""
    prompt: Any = None
    input: Any = None
    query: Any = None
    documents: Sequence[Any] = ()
    text_1: Any = None
    text_2: Any = None
    queries: Any = None
    max_tokens: int | None = None
    max_output_tokens: int | None = None


_BODIES = msgspec.json.Decoder(_Body)


def shape_of(path: str) -> str | None:
    """The API that a path belongs to; None for chat completions and for what there is not."""
    name = path.rpartition("/")[2]
    return name if name in SHAPES else None


def read_shaped(shape: str, body: bytes) -> ReadRequest:
    """Reads a request to one of these APIs; raises ValueError when it is not one."""
    read = _BODIES.decode(body)
    asked = read.prompt if shape == "completions" else read.input
    if shape in ("score", "rerank"):
        asked = next((part for part in (read.query, read.text_1, read.queries) if part is not None), None)
    if asked is None:
        raise ValueError(f"the body does not say what {shape} is asked for")
    parts = asked if isinstance(asked, list) else [asked]
    others = read.documents if shape == "rerank" else read.text_2 if isinstance(read.text_2, list) else [read.text_2]
    text = "\n".join(part if isinstance(part, str) else _encode(part).decode() for part in parts)
    token, override = token_of(text)
    limit = read.max_tokens if shape == "completions" else read.max_output_tokens if shape == "responses" else None
    return ReadRequest(
        token=token,
        override=override,
        model=read.model,
        input_tokens=max(1, len(text) // 4),
        max_tokens=limit,
        schema=None,
        wants_json=False,
        shape=shape,
        parts=len(others) if shape in ("score", "rerank") else len(parts),
    )


def shaped_result(request: ReadRequest, text: str | None, finish: str, tokens: tuple[int, int], number: int) -> bytes:
    """The body of a successful answer.  `tokens` are those of input and output."""
    made: dict[str, Any] = {"id": f"sim-{number}", "object": "list", "created": 1_700_000_000, "model": request.model}
    usage = {"prompt_tokens": tokens[0], "total_tokens": sum(tokens), "completion_tokens": tokens[1]}
    if request.shape == "completions":
        choices = [{"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish}]
        made |= {"object": "text_completion", "choices": choices, "usage": usage}
    elif request.shape == "responses":
        made |= _response(text, finish) | {"usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]}}
    elif request.shape == "embeddings":
        vectors = [
            {"object": "embedding", "index": n, "embedding": vector(f"{request.token}{n}")}
            for n in _part_numbers(request)
        ]
        made |= {"data": vectors, "usage": {"prompt_tokens": tokens[0], "total_tokens": tokens[0]}}
    elif request.shape == "score":
        scores = [
            {"index": n, "object": "score", "score": vector(f"{request.token}{n}")[0]} for n in _part_numbers(request)
        ]
        made |= {"data": scores, "usage": {"prompt_tokens": tokens[0], "total_tokens": tokens[0]}}
    elif request.shape == "rerank":
        results = [{"index": n, "relevance_score": vector(f"{request.token}{n}")[0]} for n in _part_numbers(request)]
        made |= {"results": results, "usage": {"total_tokens": tokens[0]}}
    else:
        made |= {"results": [{"flagged": False, "categories": {}} for _ in _part_numbers(request)]}
    return _encode(made)


def vector(text: str) -> list[float]:
    """The embedding of a text: always the same one, with all the digits that a float has."""
    return [crc32(f"{text}:{n}".encode()) / 2**32 - 0.5 for n in range(DIMENSIONS)]


def _part_numbers(request: ReadRequest) -> range:
    return range(request.parts)


def _response(text: str | None, finish: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text or "", "annotations": []}]
    is_cut = finish == "length"
    return {
        "object": "response",
        "status": "incomplete" if is_cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": [{"type": "message", "role": "assistant", "content": content}],
    }
