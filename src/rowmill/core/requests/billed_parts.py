"""Which parts of a request's body are billed by more than their bytes, and so have no bound or one of their own.

A token a byte bounds text.  It does not bound what a server adds: a medium behind an address, what is stored elsewhere,
what a tool of the server's brings.  What is not known to be text is taken to have no bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

IMAGES = frozenset({"image_url", "input_image"})
TEXTS = frozenset({"text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text"})
# Tools that the caller runs: what they bring comes back as text of the caller's.
OWN_TOOLS = frozenset({"function", "custom", None})
# Items of the Responses API that hold all that they stand for.
_WHOLE_ITEMS = frozenset({"function_call", "custom_tool_call", "reasoning"})
_TOOL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})

# Paths where a query is read with each of several documents.
_READ_TOGETHER = frozenset({"/score", "/rerank"})

_STORED = "it stands for text that is stored elsewhere"
_SEARCHES = "the server adds what it finds"
_NAMES: Mapping[str, str] = {
    "previous_response_id": _STORED,
    "conversation": _STORED,
    "container": _STORED,
    "data_sources": _SEARCHES,
    "enable_search": _SEARCHES,
    "mcp_servers": _SEARCHES,
    "plugins": _SEARCHES,
    "search_parameters": _SEARCHES,
    "web_search": _SEARCHES,
    "web_search_options": _SEARCHES,
    "audio": "sound has prices of its own",
    "chat_template": "it decides what becomes of the text",
    "models": "another model may answer, at another price",
    "prediction": "what of it is not taken up is billed as output",
}


class Unbounded(NamedTuple):
    """A part whose tokens nothing bounds, by where it stands in the body, and why."""

    where: str
    why: str


class BilledParts(NamedTuple):
    """What of a body is not billed by its bytes: images, the bytes that spell them, what has no bound.

    `times`: how often the whole input may be counted, where each of several documents is read with the query.
    """

    images: int = 0
    image_bytes: int = 0
    times: int = 1
    unbounded: Unbounded | None = None

    def most_input_tokens(self, content_bytes: int, image_tokens: int) -> int:
        """The most input tokens of a body of this size, with so many an image at most."""
        return (content_bytes - self.image_bytes) * self.times + self.images * image_tokens


PLAIN = BilledParts()


def billed_parts(body: Mapping[str, object], path: str) -> BilledParts:
    """Looks a body through."""
    found = unbounded_parameter(body)
    if found is None and path == "/responses" and body.get("prompt"):
        found = Unbounded("prompt", _STORED)
    images = image_bytes = 0
    parts = _documents(body) if path in _READ_TOGETHER else _parts(body)
    for where, part in () if found is not None else parts:
        if isinstance(part, Mapping) and part.get("type") in IMAGES and (url := _address(part)) is not None:
            images += 1
            image_bytes += len(url) if url.startswith("data:") else 0
        elif (why := _why_unbounded(part)) is not None:
            found = Unbounded(where, why)
            break
    if not images and found is None and path not in _READ_TOGETHER:
        return PLAIN
    return BilledParts(images, image_bytes, _times(body, path), found)


def unbounded_parameter(params: Mapping[str, object]) -> Unbounded | None:
    """The first parameter that makes a request cost what its bytes do not tell."""
    for name, why in _NAMES.items():
        if params.get(name):
            return Unbounded(name, why)
    modalities = params.get("modalities")
    if isinstance(modalities, Sequence) and any(one != "text" for one in modalities):
        return Unbounded("modalities", "what is not text has prices of its own")
    tools = params.get("tools")
    for number, tool in enumerate(tools if isinstance(tools, list | tuple) else ()):
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if not isinstance(kind, str | None) or kind not in OWN_TOOLS:
            return Unbounded(f"tools[{number}]", f"a tool of the server's, {kind}: it adds what it brings")
    return None


def _times(body: Mapping[str, object], path: str) -> int:
    if path not in _READ_TOGETHER:
        return 1
    return max([1, *(len(part) for part in body.values() if isinstance(part, list | tuple))])


def _parts(body: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The parts of all contents, each with where it stands.  Text by itself is none."""
    for name in ("messages", "input"):
        items = body.get(name)
        for number, item in enumerate(items if isinstance(items, list | tuple) else ()):
            where = f"{name}[{number}]"
            if not isinstance(item, Mapping):
                continue  # text, or the numbers of tokens
            kind = item.get("type")
            if kind in _TOOL_OUTPUTS:
                yield from _contents(f"{where}.output", item.get("output"))
            elif kind == "message" or (kind is None and not item.keys().isdisjoint(("role", "content"))):
                yield from _contents(f"{where}.content", item.get("content"))
                if item.get("audio"):
                    yield f"{where}.audio", {"type": "audio"}
            elif kind not in _WHOLE_ITEMS:
                yield where, item


def _documents(body: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in body.items():
        for number, item in enumerate(value if isinstance(value, list | tuple) else [value]):
            if isinstance(item, Mapping) and not (item.keys() == {"text"} and isinstance(item["text"], str)):
                yield (f"{name}[{number}]" if item is not value else name), item


def _contents(where: str, content: object) -> Iterator[tuple[str, object]]:
    if isinstance(content, list | tuple):
        for number, part in enumerate(content):
            yield f"{where}[{number}]", part
    elif isinstance(content, Mapping):
        yield where, content


def _why_unbounded(part: object) -> str | None:
    if isinstance(part, str):
        return None
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in TEXTS:
        return None
    return f"{kind if isinstance(kind, str) else 'a part of no known type'}: nothing says how much it counts"


def _address(part: Mapping[str, object]) -> str | None:
    """Where an image is, or itself as a data URL; None where it is stored elsewhere or not told."""
    url = part.get("image_url")
    if isinstance(url, Mapping):
        url = url.get("url")
    return url if isinstance(url, str) and not part.get("file_id") else None
