"""Puts single values into the text of a job file and leaves every other character as it is, comments included.

It must not know what the keys mean.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

import yaml

from rowmill.errors import JobError
from rowmill.job.document import Path, read_document, spell

Value = int | float | str


class _Edit(NamedTuple):
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str


def write_values(path: str, values: Mapping[Path, Value]) -> None:
    """Puts `values` into the job file, whole or not at all.

    Raises JobError, with the file untouched, where its text cannot be changed so that nothing else changes.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        changed = with_values(text, values, path)
        _replace(os.path.realpath(path), changed)
    except OSError as error:
        raise JobError(f"{path} cannot be written: {error.strerror}") from None


def _replace(path: str, text: str) -> None:
    """Through a file beside it that was not there before, so that no link is followed."""
    folder, name = os.path.split(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".new", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
            os.chmod(temporary, os.stat(path).st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def with_values(text: str, values: Mapping[Path, Value], name: str = "the job file") -> str:
    """The text with `values` (path of keys -> value) in it; raises JobError where that is not possible."""
    wanted = dict(read_document(text, name).values)
    for path, value in values.items():
        wanted = _put(wanted, path, value)
        text = _with_value(text, path, json.dumps(value, ensure_ascii=False))
    if read_document(text, name).values != wanted:
        lines = ", ".join(f"{spell(path)}: {value}" for path, value in values.items())
        raise JobError(f"{name} is written in a way that cannot be changed here; put in yourself: {lines}")
    return text


def _put(values: dict[str, object], path: Path, value: Value) -> dict[str, object]:
    """A copy with one value changed."""
    copy: dict[str, object] = json.loads(json.dumps(values))
    at: object = copy
    for key, following in zip(path, (*path[1:], None), strict=True):
        if following is None and isinstance(at, dict):
            at[key] = value
        elif isinstance(at, dict):
            at[key] = at = at.get(key) or {}
        elif isinstance(at, list) and isinstance(key, int) and key < len(at):
            at = at[key]
    return copy


def _with_value(text: str, path: Path, written: str) -> str:
    node = yaml.compose(text, yaml.SafeLoader)
    for depth, key in enumerate(path):
        child = _child(node, key)
        if child is None or (isinstance(child, yaml.ScalarNode) and depth < len(path) - 1):
            rest = [str(part) for part in path[depth + 1 :]]
            inner = written
            for part in reversed(rest):
                inner = f"{{{part}: {inner}}}"
            edit = _inserted(text, node, str(key), inner) if child is None else _replaced(text, child, inner)
            return text[: edit.start] + edit.text + text[edit.end :] if edit else text
        node = child
    assert node is not None
    edit = _replaced(text, node, written)
    return text[: edit.start] + edit.text + text[edit.end :]


def _child(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        child: yaml.Node = node.value[key]
        return child
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None


def _replaced(text: str, node: yaml.Node, written: str) -> _Edit:
    start, end = node.start_mark.index, node.end_mark.index
    empty = start == end and start > 0 and text[start - 1] != " "
    return _Edit(start, end, f" {written}" if empty else written)


def _inserted(text: str, node: yaml.Node | None, key: str, written: str) -> _Edit | None:
    """Where a mapping takes a new key: at the end of a flow mapping, after a plain line of a block mapping."""
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return None
    entry = f"{key}: {written}"
    if node.flow_style:
        last = node.value[-1][1].end_mark.index
        return _Edit(last, last, f", {entry}")
    for name, value in reversed(node.value):
        is_plain = isinstance(value, yaml.ScalarNode) and value.style not in ("|", ">") and value.value
        if is_plain or getattr(value, "flow_style", None):
            line_end = text.find("\n", value.end_mark.index)
            line_end = len(text) if line_end < 0 else line_end
            newline = "\r\n" if text[:line_end].endswith("\r") else "\n"
            line_end -= newline == "\r\n"
            return _Edit(line_end, line_end, f"{newline}{' ' * name.start_mark.column}{entry}")
    return None
