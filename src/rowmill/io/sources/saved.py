"""Owns folders that `datasets` has saved with `save_to_disk`: which files they hold; must not know formats."""

from __future__ import annotations

import json
from pathlib import Path

from rowmill.errors import SourceError

_STATE = "state.json"
_SPLITS = "dataset_dict.json"


def saved_files(folder: str) -> list[str] | None:
    """The Arrow files of a saved data set, in order; None where the folder is none.  Raises SourceError."""
    path = Path(folder)
    try:
        if (path / _SPLITS).is_file():
            splits = json.loads((path / _SPLITS).read_bytes())["splits"]
            raise SourceError(f"{folder} holds several splits: name one, for example {path / str(splits[0])}")
        if not (path / _STATE).is_file():
            return None
        named = json.loads((path / _STATE).read_bytes())["_data_files"]
        files = [str(path / Path(entry["filename"]).name) for entry in named]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SourceError(f"{folder} is a damaged data set: {error}") from error
    if not files:
        raise SourceError(f"{folder} is a saved data set without any file")
    return files
