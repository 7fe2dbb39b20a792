"""Reads a job from a file or from options, with the files it names; it does not know how a job is run.

Relative paths inside a job file are relative to that file's folder, so a job moves together with its data;
paths in options are relative to the current directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from rowmill.core.names.databases import in_folder
from rowmill.errors import JobError
from rowmill.job.answer_checks import names_python_model
from rowmill.job.document import Document, read_document
from rowmill.job.faults import describe
from rowmill.job.model import Job
from rowmill.job.options import document_of, overlay
from rowmill.job.python_model import python_function, python_schema

MAX_TEXT_BYTES = 16 * 2**20


def load_job(path: str, overrides: Mapping[str, Any]) -> Job:
    """The job in the YAML file at `path`, with flat `overrides` over it (see `job_from_options`).

    Raises JobError with every fault and its line.
    """
    name = path
    document = read_document(_read_text(path, "the job file"), name)
    document = replace(document, locations={**document.locations, (): f"{name}: "}, files=(("the job file", path),))
    document = _with_files(_in_folder(document, os.path.dirname(path)), os.path.dirname(path))
    return _valid(document, _with_files(document_of(overrides), ""))


def job_from_options(options: Mapping[str, Any]) -> Job:
    """The job that flat options make.

    Keys are those of the job file without nesting: `model` (text or a list), `url`, `headers` (a mapping, or
    texts `NAME: $VARIABLE`), `attempts`, `max_tokens`, `param` (texts `KEY=JSON`), `answer`, ...; None means
    not given.  Raises JobError with every fault.
    """
    return _valid(Document({}, {}), _with_files(document_of(options), ""))


def apply_overrides(job: Job, overrides: Mapping[str, Any]) -> Job:
    """`job`, for example one from a run file, with flat options over it."""
    stored = Document(json.loads(job.to_json()), {}, files=tuple(job.files))
    return _valid(stored, _with_files(document_of(overrides), ""))


def _valid(below: Document, above: Document) -> Job:
    faults = [*below.faults, *above.faults]
    document = overlay(replace(below, faults=()), replace(above, faults=()))
    try:
        job = Job.model_validate(document.values)
    except ValidationError as error:
        raise JobError(*faults, *describe(error, Job, document)) from None
    if faults:
        raise JobError(*faults)
    return job.read_from([*below.files, *above.files])


def _in_folder(document: Document, folder: str) -> Document:
    """Makes the paths of a job file relative to where the process stands."""
    values = dict(document.values)
    for key in ("source", "output", "run_file"):
        path = values.get(key)
        if key == "source" and isinstance(path, list) and all(isinstance(part, str) for part in path):
            values[key] = [part if "://" in part else os.path.join(folder, part) for part in path]
        if isinstance(path, str) and path != "-" and "://" not in path and path.strip():
            values[key] = os.path.join(folder, path)
        elif isinstance(path, str) and key != "run_file":
            values[key] = in_folder(path, folder)
    return replace(document, values=values)


def _with_files(document: Document, folder: str) -> Document:
    """Reads the files that stand for texts (`@FILE`, a schema's file) and makes paths of secrets absolute."""
    values, faults, files = dict(document.values), list(document.faults), list(document.files)

    def text_of(value: Any, *path: str | int) -> Any:
        try:
            if (named := _named_file(value)) is not None:
                files.append(("the file of a text", os.path.join(folder, named)))
            return _text(value, folder)
        except JobError as error:
            faults.append(f"{document.location(path)}: {error}")
            return value

    def turns_of(turns: Any, *path: str | int) -> Any:
        if not isinstance(turns, list):
            return text_of(turns, *path)
        return [
            {key: text_of(part, *path, index, key) for key, part in turn.items()} if isinstance(turn, dict) else turn
            for index, turn in enumerate(turns)
        ]

    for key in ("prompt", "system"):
        if key in values:
            values[key] = turns_of(values[key], key)
    answer = values.get("answer")
    if isinstance(answer, dict) and isinstance(answer.get("schema"), str):
        try:
            values["answer"], read = _with_schema(answer, folder)
            files += read
        except JobError as error:
            faults.append(f"{document.location(('answer', 'schema'))}: {error}")
            del values["answer"]  # nothing that depends on the schema can be judged without it
    if isinstance(values.get("endpoints"), list):
        values["endpoints"] = [
            {**_absolute(endpoint, folder), "prompt": turns_of(endpoint["prompt"], "endpoints", index, "prompt")}
            if isinstance(endpoint, dict) and "prompt" in endpoint
            else _absolute(endpoint, folder)
            for index, endpoint in enumerate(values["endpoints"])
        ]
        faults += _unknown_functions(document, values["endpoints"], folder)
    return replace(document, values=values, faults=tuple(faults), files=tuple(files))


def _with_schema(answer: Mapping[str, Any], folder: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The answer with the schema that its text names, and the file that it was read from."""
    named = _schema_file(answer["schema"])
    read = [] if named is None else [("the schema", os.path.join(folder, named))]
    return {**answer, "schema": _schema(answer["schema"], folder)}, read


def _unknown_functions(document: Document, endpoints: list[Any], folder: str) -> list[str]:
    """What is wrong with the functions that endpoints name; those that are found stay imported."""
    faults = []
    for index, endpoint in enumerate(endpoints):
        name = endpoint.get("parse") if isinstance(endpoint, dict) else None
        if isinstance(name, str) and names_python_model(name):
            try:
                python_function(name, folder)
            except JobError as error:
                faults.append(f"{document.location(('endpoints', index, 'parse'))}: {error}")
    return faults


def _absolute(endpoint: Any, folder: str) -> Any:
    if not isinstance(endpoint, dict):
        return endpoint
    paths = {
        key: os.path.abspath(os.path.join(folder, os.path.expanduser(endpoint[key])))
        for key in ("key_file", "ca_file")
        if isinstance(endpoint.get(key), str) and endpoint[key].strip()
    }
    return {**endpoint, **paths}


def _text(value: Any, folder: str) -> Any:
    """`@FILE` is the file's text, `@@...` a text that begins with one @."""
    named = _named_file(value)
    if named is None:
        return value[1:] if isinstance(value, str) and value.startswith("@@") else value
    try:
        return _read_text(os.path.join(folder, named), "the file")
    except JobError as error:
        raise JobError(f"{error} (a text that begins with @ is written @@)") from None


def _named_file(value: Any) -> str | None:
    is_file = isinstance(value, str) and value.startswith("@") and not value.startswith("@@")
    return value[1:] if is_file else None


def _schema(text: str, folder: str) -> Any:
    if names_python_model(text):
        return python_schema(text, folder)
    name = _schema_file(text)
    if name is None:
        if not text.lstrip().startswith("{"):
            return text
        try:
            return json.loads(text)
        except ValueError:
            return text  # the shorthand may stand in braces, too
    content = _read_text(os.path.join(folder, name), "the schema")
    try:
        return json.loads(content)
    except ValueError as error:
        raise JobError(f"{name} is not valid JSON: {error}") from None


def _schema_file(text: str) -> str | None:
    if names_python_model(text) or not (text.startswith("@") or text.lower().endswith(".json")):
        return None
    return text.removeprefix("@")


def _read_text(path: str, what: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise JobError(f"{what} {path} is not there") from None
    except IsADirectoryError:
        raise JobError(f"{what} {path} is a directory") from None
    except OSError as error:
        raise JobError(f"{what} {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise JobError(f"{what} has a name that no file can have") from None
    if len(content) > MAX_TEXT_BYTES:
        raise JobError(f"{what} {path} is larger than {MAX_TEXT_BYTES // 2**20} MB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise JobError(f"{what} {path} is not UTF-8 (line {line})") from None
