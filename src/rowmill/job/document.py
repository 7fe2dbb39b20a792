"""YAML text -> plain values and the line of each; it knows nothing of what the keys mean.

Scalars follow YAML 1.2: only `true` and `false` are booleans (`yes`, `no` and `on` are words), there are no
dates and no sexagesimal numbers, and keys are always text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from rowmill.errors import JobError

Path = tuple[str | int, ...]

MAX_NODES = 100_000  # aliases of aliases would otherwise grow a small file beyond all memory

_SCALARS = (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values, where each came from, what was wrong with the text itself, and the files that were read for it.

    `locations` maps a path of keys to what the user knows it by: `job.yaml:12: endpoints[0].model` or `--model`.
    `files` are pairs of what a file is and its path.
    """

    values: dict[str, Any]
    locations: Mapping[Path, str]
    faults: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    def location(self, path: Path) -> str:
        """Where `path` was written; for a path without a location, its nearest parent's with the rest appended."""
        for length in range(len(path), -1, -1):
            known = self.locations.get(path[:length])
            if known is not None:
                rest = spell(path[length:])
                if not rest:
                    return known
                joint = "" if rest.startswith("[") or known.endswith(": ") else "."
                return f"{known}{joint}{rest}"
        return spell(path)


def spell(path: Path) -> str:
    """`("endpoints", 0, "model")` as `endpoints[0].model`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, firsts in _SCALARS:
        whole = re.compile(rf"(?:{pattern})\Z")
        for first in (*firsts, "") if tag.endswith("null") else firsts:
            table.setdefault(first, []).append((f"tag:yaml.org,2002:{tag}", whole))
    return table


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars of YAML 1.2."""

    yaml_implicit_resolvers = _resolvers()


def read_document(text: str, name: str) -> Document:
    """Reads YAML text; `name` is the file's name for messages.

    Raises JobError for text that is no YAML mapping; duplicate keys and foreign tags become `faults`.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    except RecursionError:
        raise JobError(f"{name}: it is nested too deeply for a job file; take some of its brackets away") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise JobError(f"{name}:{line}: not valid YAML: {_say(error)}") from None
    except yaml.YAMLError as error:
        raise JobError(f"{name}: not valid YAML: {error}") from None
    finally:
        loader.dispose()
    if node is None:
        raise JobError(f"{name}: the job file is empty")
    if not isinstance(node, yaml.MappingNode):
        raise JobError(f"{name}:{node.start_mark.line + 1}: a job file is a mapping of keys to values")
    reader = _Reader(name)
    values = reader.mapping(node, ())
    return Document(values, reader.locations, tuple(reader.faults))


def _say(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or str(error)
    if "found character '%'" in problem or "cannot start any token" in problem:
        return f"{problem}; put text with special characters in quotes"
    if "mapping values are not allowed" in problem:
        return f"{problem}; put text that holds ': ' in quotes"
    return problem


@dataclass(slots=True)
class _Reader:
    """Turns nodes into values and notes where each stands."""

    name: str
    locations: dict[Path, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    nodes: int = 0
    _open: set[int] = field(default_factory=set)

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or id(node) in self._open:
            raise JobError(f"{self.name}:{node.start_mark.line + 1}: anchors and aliases grow without end")
        self.locations[path] = f"{self.name}:{node.start_mark.line + 1}: {spell(path)}"
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(f"{self.name}:{line}: a key must be text; put {{...}} in quotes")
                continue
            key = key_node.value
            here = (*path, key)
            if key in values:
                first = lines[key]
                self.faults.append(f"{self.name}:{line}: {spell(here)}: stands twice (first on line {first})")
                continue
            lines[key] = line
            values[key] = self.value(value_node, here)
            self.locations[here] = f"{self.name}:{line}: {spell(here)}"
        return values

    def scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text = node.value
        try:
            match kind:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
                case "float":
                    return _float(text)
        except (ValueError, KeyError):
            pass
        where = self.locations[path]
        self.faults.append(f"{where}: `{node.tag}` is not a kind of value that a job file may hold")
        return text


def _float(text: str) -> float:
    lowered = text.lower()
    if lowered.endswith(".inf"):
        return -math.inf if lowered.startswith("-") else math.inf
    return math.nan if lowered == ".nan" else float(text)
