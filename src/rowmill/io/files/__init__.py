"""Owns files by name, on this machine or elsewhere: is it there, take it away, put it there; must not know formats.

Every fault is an OSError whose text is fit to show to the user.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from rowmill.core.names.files import is_remote

__all__ = ["exists", "is_folder", "remove", "rename", "stamp"]


def exists(path: str) -> bool:
    """Whether a file or folder is there."""
    if is_remote(path):
        from rowmill.io.files import remote

        return remote.exists(path)
    return os.path.exists(path)


def is_folder(path: str) -> bool:
    """Whether a folder is there; a prefix that holds files counts as one."""
    if is_remote(path):
        from rowmill.io.files import remote

        return remote.is_folder(path)
    return os.path.isdir(path)


def remove(path: str) -> None:
    """Takes a file or a folder away, if it is there."""
    if is_remote(path):
        from rowmill.io.files import remote

        remote.remove(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def rename(path: str, new: str) -> None:
    """Gives a file or folder another name at the same place."""
    if is_remote(path):
        from rowmill.io.files import remote

        remote.move(path, new)
    else:
        os.rename(path, new)


def stamp(path: str) -> list[Any] | None:
    """What changes whenever the file, or a file in the folder, does; None where nothing is there.  JSON-ready."""
    if is_remote(path):
        from rowmill.io.files import remote

        return remote.stamp(path)
    try:
        stat = os.stat(path)
        if not os.path.isdir(path):
            return [stat.st_size, stat.st_mtime_ns]
        with os.scandir(path) as entries:
            return sorted([entry.name, entry.stat().st_size, entry.stat().st_mtime_ns] for entry in entries)
    except FileNotFoundError:
        return None
