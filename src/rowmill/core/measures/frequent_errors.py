"""The most frequent errors of rows, messages alike but for what is one row's own counted as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rowmill.core.shortening import shortened

MOST_SHOWN = 3
MESSAGE_CHARS = 300
# What tells two messages of one kind apart: ids and figures, and what stands in quotation marks.
_OWN = re.compile(r"\"[^\"]{0,200}\"|'[^']{0,200}'|`[^`]{0,200}`|\b[\w-]*\d[\w.-]*")


def frequent_errors(found: Iterable[tuple[str, int]], most: int = MOST_SHOWN) -> Sequence[tuple[str, int]]:
    """The most frequent kinds of error among messages and their counts, each as it reads most often, with its count."""
    examples: dict[str, tuple[str, int]] = {}
    counts: dict[str, int] = {}
    for message, count in found:
        kind = _OWN.sub("*", message[:MESSAGE_CHARS])
        counts[kind] = counts.get(kind, 0) + count
        if kind not in examples or examples[kind][1] < count:
            examples[kind] = message, count
    ordered = sorted(counts, key=lambda kind: -counts[kind])[:most]
    return [(shortened(examples[kind][0], MESSAGE_CHARS), counts[kind]) for kind in ordered]
