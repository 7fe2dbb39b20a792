"""The JSON Schema of a pydantic model that a job names as `module:Model`; it knows nothing else of a job."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from rowmill.errors import JobError


def python_schema(name: str, folder: str) -> dict[str, Any]:
    """The schema of the model; modules are also looked for in `folder` and the current directory.

    Imports the module, which runs the user's code.  Raises JobError.
    """
    module_name, _, model_name = name.partition(":")
    try:
        with _importable(os.path.abspath(folder or ".")):
            module = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything
        raise JobError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from None
    model = getattr(module, model_name, None)
    if model is None:
        raise JobError(f"{module_name} has no {model_name}")
    try:
        schema = model.model_json_schema()
    except Exception as error:  # the user's model may raise anything, and may be no model
        raise JobError(f"{name} is no pydantic model: {type(error).__name__}: {error}") from None
    return dict(schema)


@contextlib.contextmanager
def _importable(folder: str) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [folder, os.getcwd()]
    try:
        yield
    finally:
        sys.path[:] = before
