"""Owns files elsewhere, reached through fsspec: opens, lists, puts and removes them; must not know formats or rows.

Credentials are the libraries' own affair (environment, their files).  Every fault is an OSError whose text is fit
to show: foreign exceptions end here.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

from rowmill.core.names.files import is_web, scheme, without_queries

# Here a file appears whole or not at all when it is put; anywhere else it is put beside its name and moved.
_APPEARS_WHOLE = frozenset({"abfs", "abfss", "az", "gcs", "gs", "hf", "oci", "oss", "s3", "s3a"})
_EXTRA = "pip install 'rowmill[remote]'"
_PACKAGES = {
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "gcs": "gcsfs",
    "gs": "gcsfs",
    "hf": "huggingface_hub",
    "sftp": "paramiko",
    "smb": "smbprotocol",
    "ssh": "paramiko",
}
_SEQUENTIAL_BYTES = 4 << 20
_SILENCE_S = 60
_GLOB_CHARACTERS = "*?["
_LONGEST_REASON = 300

Access = Literal["sequential", "random"]


class _Told(OSError):
    """A fault put into words here."""


def find(spec: str) -> list[str]:
    """The URLs that a URL or glob names, sorted; never none."""
    with _translated():
        files, path = _file_system(spec)
        if is_web(spec) or not any(character in spec for character in _GLOB_CHARACTERS):
            if not is_web(spec) and files.isdir(path):
                raise _Told("it is a folder: name its files, for example with *")
            return [spec]
        found = files.glob(path, detail=True)
        names = sorted(name for name, entry in found.items() if entry.get("type") != "directory")
        if not names:
            raise _Told("no file matches")
        return [str(files.unstrip_protocol(name)) for name in names]


def open_file(path: str, access: Access) -> BinaryIO:
    """The file's bytes.  Where its server gives no parts of it, the whole is first fetched into a file here."""
    with _translated():
        files, stripped = _file_system(path)
        options: dict[str, Any] = {"block_size": _SEQUENTIAL_BYTES}
        if access == "random":
            options["cache_type"] = "none"
        if is_web(path) and not _gives_parts(files, stripped):
            with files.open(stripped, "rb", block_size=0) as file:
                return _fetched(file)
        file = _opened(files, stripped, options)
        return io.BufferedReader(_Reading(file), _SEQUENTIAL_BYTES if access == "sequential" else 1)


def _gives_parts(files: Any, path: str) -> bool:
    """Whether a web server gives parts of the file; asking is the only way to know."""
    try:
        with files.open(path, "rb", block_size=1, cache_type="none") as probe:
            probe.seek(1)
            probe.read(1)
    except ValueError:
        return False
    return True


def _opened(files: Any, path: str, options: dict[str, Any]) -> Any:
    try:
        return files.open(path, "rb", **options)
    except (TypeError, ValueError):
        # File systems differ in what they can be told.
        return files.open(path, "rb")


def _fetched(file: Any) -> BinaryIO:
    whole = tempfile.TemporaryFile()  # noqa: SIM115 the caller closes it
    try:
        shutil.copyfileobj(file, whole, _SEQUENTIAL_BYTES)
    except BaseException:
        whole.close()
        raise
    whole.seek(0)
    return whole


def exists(path: str) -> bool:
    """Whether a file, or a prefix that holds files, is there."""
    with _translated():
        files, stripped = _file_system(path)
        return _is_there(files, stripped)


def _is_there(files: Any, path: str) -> bool:
    """As `files.exists`, which for some is false whatever has gone wrong."""
    try:
        files.info(path)
    except FileNotFoundError:
        return False
    return True


def is_folder(path: str) -> bool:
    """Whether it is a prefix that holds files, or a folder."""
    with _translated():
        files, stripped = _file_system(path)
        return bool(files.isdir(stripped))


def names_in(path: str) -> list[str]:
    """Names of what a folder holds."""
    with _translated():
        files, stripped = _file_system(path)
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in files.ls(stripped, detail=False))


def remove(path: str) -> None:
    """Takes a file or a folder away, if it is there."""
    with _translated(), contextlib.suppress(FileNotFoundError):
        files, stripped = _file_system(path)
        if _is_there(files, stripped):
            files.rm(stripped, recursive=bool(files.isdir(stripped)))


def move(path: str, new: str) -> None:
    """Gives a file or a folder another name on the same server."""
    with _translated():
        files, stripped = _file_system(path)
        target = str(files._strip_protocol(new))
        if not files.isdir(stripped):
            files.mv(stripped, target)
            return
        for name in files.find(stripped):
            files.mv(name, target + name[len(stripped) :])


def stamp(path: str) -> list[Any] | None:
    """Sizes and marks of the file, or of all files in the folder; None where nothing is there."""
    with _translated():
        files, stripped = _file_system(path)
        if not _is_there(files, stripped):
            return None
        if not files.isdir(stripped):
            return _mark(files.info(stripped))
        return sorted(_mark(entry) for entry in files.ls(stripped, detail=True))


def _mark(entry: dict[str, Any]) -> list[object]:
    marks = (str(entry[key]) for key in ("ETag", "etag", "LastModified", "mtime", "created") if entry.get(key))
    return [str(entry.get("name")), entry.get("size") or 0, *marks]


def check_writable(path: str) -> None:
    """Raises OSError unless a file could be put there, as far as that can be told without putting one."""
    if is_web(path):
        raise _Told("a web page can be read and not written")
    with _translated():
        files, stripped = _file_system(path)
        root = stripped.lstrip("/").partition("/")[0]
        if scheme(path) not in _APPEARS_WHOLE or scheme(path) == "hf":
            return
        if root == stripped.strip("/"):
            raise _Told("it names a bucket and no file in it")
        if not _is_there(files, root):
            raise _Told(f"there is no bucket {root}, or these credentials may not see it")


def upload(local: str, path: str) -> None:
    """Puts a file there; it appears whole, or not at all."""
    with _translated():
        files, stripped = _file_system(path)
        if scheme(path) in _APPEARS_WHOLE:
            files.put_file(local, stripped)
            return
        folder, _, name = stripped.rpartition("/")
        unfinished = f"{folder}/.{name}.rowmill-tmp" if folder else f".{name}.rowmill-tmp"
        files.makedirs(folder, exist_ok=True)
        try:
            files.put_file(local, unfinished)
            files.mv(unfinished, stripped)
        except BaseException:
            with contextlib.suppress(Exception):
                files.rm_file(unfinished)
            raise


def _file_system(path: str) -> tuple[Any, str]:
    """The file system behind a URL and the file's name in it."""
    kind = scheme(path) or ""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise _Told(f"{kind}:// needs the package fsspec: {_EXTRA}") from None
    try:
        files, stripped = url_to_fs(path, **(_web_options() if is_web(path) else {}))
    except ImportError as error:
        package = _PACKAGES.get(kind)
        raise _Told(
            f"{kind}:// needs a package that is not installed: {f'pip install {package}' if package else _EXTRA}"
            f" ({error})"
        ) from None
    except ValueError as error:
        if "protocol" in str(error).lower():
            raise _Told(f"{kind}:// is no kind of URL that fsspec knows") from None
        raise
    # Listings may have changed since this process has asked last.
    files.invalidate_cache()
    return files, str(stripped)


def _web_options() -> dict[str, Any]:
    """A large page may take its time as long as something comes."""
    from aiohttp import ClientTimeout

    return {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_connect=_SILENCE_S, sock_read=_SILENCE_S)}}


class _Reading(io.RawIOBase):
    """A file of fsspec's, with its exceptions turned into OSError."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with _translated():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with _translated():
            piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            # Closing what was only read changes nothing that could be lost.
            with contextlib.suppress(Exception):
                self._file.close()
        super().close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Any exception of a foreign file system becomes an OSError with one line of text and no signed URL."""
    try:
        yield
    except _Told:
        raise
    except Exception as error:  # fsspec's file systems are plug-ins and may raise anything
        raise OSError(_reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        # fsspec calls a web page missing whatever went wrong with it; what did is the cause.
        if error.__cause__ is None or getattr(error.__cause__, "status", None) == 404:
            return "there is no such file"
        return _one_line(error.__cause__)
    if isinstance(error, PermissionError):
        return f"permission denied: {_one_line(error)}"
    return _one_line(error)


def _one_line(error: BaseException) -> str:
    text = " ".join(without_queries(getattr(error, "strerror", None) or str(error)).split())
    return (text or type(error).__name__)[:_LONGEST_REASON]
