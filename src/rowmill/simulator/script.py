"""One scripted reply (`Step`) and sequences of them; knows nothing of sockets or time."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Fault(StrEnum):
    """How one reply is made wrong.  `OK` is a right answer."""

    OK = "ok"
    ERROR = "error"  # an HTTP error with a JSON body; the status says which
    HANG = "hang"  # read and never answered
    DRIP = "drip"  # a right answer, a few bytes at a time over `drip_s`
    CUT = "cut"  # half of the body, then the connection is closed
    RESET = "reset"  # the connection is reset before any byte of the reply
    HTML = "html"  # a page of 50 KB instead of JSON
    BAD_ENCODING = "bad-encoding"  # JSON with bytes that are not UTF-8
    ERROR_200 = "error-200"  # status 200 with an error body; `code` is its inner code
    EMPTY = "empty"  # status 200 with no body
    NO_CHOICES = "no-choices"
    NULL = "null"  # every field null
    LENGTH = "length"  # cut at the token limit: finish_reason length
    LENGTH_NULL = "length-null"  # content null at the token limit, all tokens spent on reasoning
    FILTERED = "filtered"  # finish_reason content_filter
    REFUSED = "refused"  # a refusal instead of content
    THINK = "think"  # <think>...</think> before the answer
    REASONING = "reasoning"  # reasoning_content beside the answer
    FENCED = "fenced"  # the answer in a Markdown fence
    BAD_JSON = "bad-json"  # an answer that is not JSON although it was asked for
    NO_USAGE = "no-usage"  # a right answer without usage


@dataclass(frozen=True, slots=True)
class Step:
    """One reply.  None means: as the behaviour says.

    `retry_after` is the header's text.  `code` and `error_type` go into the error body.  `text` replaces the
    answer, `body` the whole body.
    """

    fault: Fault = Fault.OK
    status: int = 200
    code: str | None = None
    error_type: str | None = None
    message: str | None = None
    retry_after: str | None = None
    latency_s: float | None = None
    text: str | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Step:
        """`503`, `hang`, `429 code=insufficient_quota retry-after=3`, `ok latency=2 text="so be it"`.

        Other options: `status type message body` and `header:NAME`.  Raises ValueError naming the bad word.
        """
        words = shlex.split(text)
        head = words.pop(0) if words and "=" not in words[0] else "ok"
        options = {}
        for word in words:
            name, sign, value = word.partition("=")
            if not sign:
                raise ValueError(f"{word!r} in the step {text!r} is not NAME=VALUE")
            options[name] = value
        if head.isdigit():
            options.setdefault("status", head)
            head = "ok" if head == "200" else "error"
        return step_from(head, options)


def step_from(fault: str, options: Mapping[str, str]) -> Step:
    """A step from the fault's name and its options as text; raises ValueError."""
    known = {"status", "code", "type", "message", "retry-after", "latency", "text", "body"}
    unknown = [name for name in options if name not in known and not name.startswith("header:")]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(known))}, header:NAME")
    if fault not in list(Fault):
        near = get_close_matches(fault, list(Fault), n=1, cutoff=0.5)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no fault {fault!r}; {meant}There are {', '.join(Fault)}, and any status")
    status = int(options.get("status", "200"))
    if status != 200 and fault == Fault.OK:
        fault = Fault.ERROR
    body = options.get("body")
    return Step(
        fault=Fault(fault),
        status=status,
        code=options.get("code"),
        error_type=options.get("type"),
        message=options.get("message"),
        retry_after=options.get("retry-after"),
        latency_s=float(options["latency"]) if "latency" in options else None,
        text=options.get("text"),
        body=None if body is None else body.encode(),
        headers={name[7:]: value for name, value in options.items() if name.startswith("header:")},
    )


@dataclass(frozen=True, slots=True)
class Script:
    """The replies to a row's first, second, ... request.  After the last: no fault, or the last for ever."""

    steps: Sequence[Step]
    last_repeats: bool = False

    def at(self, number: int) -> Step | None:
        """The step of the row's request `number` (0-based), None when the script is used up."""
        if number < len(self.steps):
            return self.steps[number]
        return self.steps[-1] if self.last_repeats and self.steps else None


def as_script(value: str | Step | Sequence[Step] | Script) -> Script:
    """A script from text (`503, 503, ok`; a trailing `...` repeats the last step for ever) or from steps."""
    if isinstance(value, Script):
        return value
    if isinstance(value, Step):
        return Script((value,))
    if not isinstance(value, str):
        return Script(tuple(value))
    text = value.strip()
    last_repeats = text.endswith("...")
    parts = [part.strip() for part in text.removesuffix("...").split(",")]
    return Script(tuple(Step.parse(part) for part in parts if part), last_repeats)
