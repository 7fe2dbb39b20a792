"""A file system of fsspec's, in memory, that stops taking files after some."""

from __future__ import annotations

from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class Frail(MemoryFileSystem):  # type: ignore[misc]  # it has no types
    """`frail://`; it takes as many files as `takes` says and then fails with words that hold a signed URL."""

    protocol = "frail"
    store: dict[str, Any] = {}  # noqa: RUF012 as fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012 as fsspec's own
    takes = 1_000

    @classmethod
    def renewed(cls) -> type[Frail]:
        """Makes it known to fsspec, empty and well."""
        fsspec.register_implementation("frail", cls, clobber=True)
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.takes = 1_000
        return cls

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        if type(self).takes <= 0:
            raise TimeoutError("the line is dead; see https://help?signature=abc")
        type(self).takes -= 1
        super().put_file(lpath, rpath, **options)
