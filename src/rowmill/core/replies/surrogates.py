"""JSON in which half a character stands: models emit it when they are cut inside an emoji.

Strict readers refuse a lone surrogate escape, and a whole reply that is paid for would be lost for one letter.  What
is stored stays as it came.
"""

from __future__ import annotations

import re

_LONE = rb"u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = rb"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Every escape is taken whole, so that an escaped backslash before a `u` is not taken for one.  Linear: each step
# begins at a backslash and takes at most twelve bytes.
_ESCAPE = re.compile(rb"\\(?:(" + _PAIR + rb")|(" + _LONE + rb")|.)", re.DOTALL)
_REPLACEMENT = rb"\ufffd"


def without_lone_surrogates(json: bytes) -> bytes:
    """JSON text with U+FFFD for each escape that is half a character; the same object where there is none."""
    if b"\\ud" not in json and b"\\uD" not in json:
        return json
    mended = _ESCAPE.sub(lambda escape: _REPLACEMENT if escape[2] else escape[0], json)
    return json if mended == json else mended


def text_without_lone_surrogates(json: str) -> str:
    """The same for JSON that stands in a text."""
    if "\\ud" not in json and "\\uD" not in json:
        return json
    return without_lone_surrogates(json.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
