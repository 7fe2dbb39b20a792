"""What a job names of a user's own Python: a pydantic model's JSON Schema, a function; it knows nothing else of it."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

from rowmill.errors import JobError


def python_schema(name: str, folder: str) -> dict[str, Any]:
    """The schema of the model; modules are also looked for in `folder` and the current directory.

    Imports the module, which runs the user's code.  Raises JobError.
    """
    model = _named(name, folder)
    try:
        schema = model.model_json_schema()
    except Exception as error:  # the user's model may raise anything, and may be no model
        raise JobError(f"{name} is no pydantic model: {type(error).__name__}: {error}") from None
    return dict(schema)


def python_function(name: str, folder: str = "") -> Callable[[str], object]:
    """The function that `module:function` names; see `python_schema`."""
    function = _named(name, folder)
    if not callable(function):
        raise JobError(f"{name} is no function")
    return cast("Callable[[str], object]", function)


def _named(name: str, folder: str) -> Any:
    module_name, _, own_name = name.partition(":")
    try:
        with _importable(os.path.abspath(folder or ".")):
            module = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything
        raise JobError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from None
    found = getattr(module, own_name, None)
    if found is None:
        raise JobError(f"{module_name} has no {own_name}")
    return found


@contextlib.contextmanager
def _importable(folder: str) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [folder, os.getcwd()]
    try:
        yield
    finally:
        sys.path[:] = before
