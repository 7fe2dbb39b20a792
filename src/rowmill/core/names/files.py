"""Owns what the name of a file tells by itself: here or elsewhere, its leaf, its run file; must not touch any file."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from urllib.parse import parse_qsl, unquote, urlsplit

# fsspec's chains (`simplecache::s3://...`) are URLs, too.
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_HERE = re.compile(r"(?:file|local)://(?:localhost(?=/))?", re.IGNORECASE)
_WEB = ("http", "https")

# Parameters that carry a key or a signature, as presigned URLs have them.
SECRET_PARAMETERS = frozenset(
    {
        "access_token",
        "api-key",
        "api_key",
        "apikey",
        "auth",
        "awsaccesskeyid",
        "code",
        "key",
        "password",
        "secret",
        "sig",
        "signature",
        "subscription-key",
        "token",
        "x-amz-credential",
        "x-amz-security-token",
        "x-amz-signature",
        "x-goog-credential",
        "x-goog-signature",
    }
)


def scheme(path: str) -> str | None:
    """`s3` of `s3://bucket/in.csv`, None for a path of this machine."""
    found = _URL.match(path)
    return found[1].lower() if found else None


def is_remote(path: str) -> bool:
    """Whether the file is elsewhere: it has a URL and not a path of this machine."""
    return scheme(path) is not None


def is_web(path: str) -> bool:
    """Whether it is a page of the web, which can be read and neither listed nor written."""
    return scheme(path) in _WEB


def without_file_scheme(path: str) -> str:
    """`file:///data/in.csv` as the path that it is."""
    found = _HERE.match(path)
    return path if found is None else path[found.end() :]


def file_part(path: str) -> str:
    """The part of a URL that names the file, without a web page's query; a path as it is."""
    return urlsplit(path).path if is_web(path) else path


def leaf(path: str) -> str:
    """The file's own name."""
    name = file_part(path).rstrip("/").rpartition("/")[2]
    return unquote(name) if is_web(path) else name


def held_secret(path: str) -> str | None:
    """What of a URL is a secret, None where nothing is; the secret itself is not in it."""
    if not is_remote(path):
        return None
    try:
        parts = urlsplit(path)
    except ValueError:
        return None
    if parts.password is not None or (parts.username is not None and is_web(path)):
        return "a user name or password"
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    found = next((name for name in names if name.lower() in SECRET_PARAMETERS), None)
    return None if found is None else f"a key (`{found}`)"


def without_queries(text: str) -> str:
    """The text with the queries of all URLs in it taken off: they may be signed."""
    return re.sub(r"([a-z][a-z0-9+.-]*://[^\s?'\"]*)\?[^\s'\"]*", r"\1", text, flags=re.IGNORECASE)


def default_run_file(output: str) -> str:
    """Where the run file of an output is when the user does not say: beside it.

    A run file is always on this machine.  That of an output elsewhere is in the current folder, and eight hex
    digits of the URL keep two outputs of one name apart.
    """
    return f"{_near(output)}.rowmill"


def scratch_path(output: str) -> str:
    """The name under which an output is made on this machine before it is given its own name."""
    return os.path.realpath(_near(output))


def _near(output: str) -> str:
    if not is_remote(output):
        return output
    digest = blake2b(output.rstrip("/").encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{leaf(output)}.{digest}"


def failures_path(output: str) -> str:
    """Where the rows of an output go that ended badly."""
    return f"{output}.failed.jsonl"


SEVERAL = "\n"  # stands between the names of several files that are one source; no name on a command line holds it


def source_parts(source: str) -> list[str]:
    """The names that a source consists of, in order; globs as they are."""
    return source.split(SEVERAL)
