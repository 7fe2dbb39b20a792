"""Which server a model name means, and how that server is spoken to; must not send anything or read a key."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from rowmill.core.limits.concurrency import START
from rowmill.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ResolvedEndpoint:
    """One model behind one URL.

    `url` is where requests are posted (empty for the embedded model).  `key_env` names the variable that may hold
    a key; without `key_required` it need not.  `auth` is bearer or the name of the header that holds the key;
    `headers` are sent besides; `structured` is json_schema, json_object, tool or none; `dialect` names the
    rate-limit headers; `counts` says which tokens of the answer a token limit counts: max_tokens or used.
    `provider` is openai, anthropic, http or local.  `first_in_flight` is where `--in-flight auto` starts;
    `doubts_length`: a finish reason "length" is believed only where the usage has reached `max_tokens`.
    """

    model: str
    url: str
    preset: str | None = None
    provider: str = "openai"
    key_env: str | None = None
    key_required: bool = False
    auth: str = "bearer"
    structured: str = "json_schema"
    dialect: str = "openai"
    counts: str = "used"
    headers: Mapping[str, str] = field(default_factory=dict)
    first_in_flight: int = START
    doubts_length: bool = False

    @property
    def host(self) -> str:
        """host:port (or host), fit to show; `local` for the embedded model."""
        return urlsplit(self.url).netloc.rpartition("@")[2] or "local"


def resolve(model: str, url: str | None = None, *, key_env: str | None = None) -> ResolvedEndpoint:
    """The endpoint that `PRESET/NAME` means, or any name with `url`.

    A name without a preset takes the settings of the preset whose host `url` has.  Raises JobError.
    """
    presets = load_presets()
    head, slash, name = model.partition("/")
    preset = head if slash and head in presets else None
    if preset is None:
        name = model
        if url is None:
            raise JobError(_unknown(model, presets))
        preset = _preset_at(url, presets)
    if not name.strip():
        raise JobError(f"the model {model!r} has no name after the preset; write {head}/NAME")
    settings = presets[preset] if preset else {}
    return ResolvedEndpoint(
        model=name,
        url=_base_url(preset, settings, url),
        preset=preset,
        provider=settings.get("provider", "openai"),
        key_env=key_env or settings.get("key_env"),
        key_required=_needs_key(settings, url, key_env),
        auth=settings.get("auth", "bearer"),
        structured=settings.get("structured", "json_schema"),
        dialect=settings.get("dialect", "openai"),
        counts=settings.get("counts", "used"),
        headers=settings.get("headers", {}),
        first_in_flight=settings.get("first_in_flight", START),
        doubts_length=settings.get("doubts_length", False),
    )


def load_presets() -> Mapping[str, Mapping[str, Any]]:
    """All presets, by name."""
    return tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))


def sells_tokens(endpoint: ResolvedEndpoint) -> bool:
    """Whether an endpoint is the provider that its preset names, and not a server of somebody's own."""
    if endpoint.preset is None:
        return False
    settings = load_presets()[endpoint.preset]
    if settings.get("key") == "optional":
        return False
    known = settings.get("url")
    return known is None or urlsplit(known).hostname == urlsplit(endpoint.url).hostname


def chat_url(url: str) -> str:
    """Where chat completions are posted below a base URL; a bare host means `/v1`, the query is kept."""
    return _below(url, "/chat/completions")


def sibling_url(chat: str, path: str) -> str:
    """Where another API of the server is, whose chat completions are at `chat`; the query is kept."""
    parts = urlsplit(chat)
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/chat/completions") + path))


def _below(url: str, ending: str) -> str:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith(ending):
        path = f"{path or '/v1'}{ending}"
    return urlunsplit(parts._replace(path=path, fragment=""))


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _base_url(preset: str | None, settings: Mapping[str, Any], url: str | None) -> str:
    if settings.get("provider") == "local":
        if url is not None:
            raise JobError("the embedded model needs no --url")
        return ""
    base = url or settings.get("url")
    if base is None:
        raise JobError(f"{preset} needs --url, for example {settings.get('example', 'https://HOST/v1')}")
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise JobError(f"--url {base!r} is not a URL like http://localhost:8000/v1")
    provider = settings.get("provider")
    if provider == "http":
        return base
    return _below(base, "/messages") if provider == "anthropic" else chat_url(base)


def _needs_key(settings: Mapping[str, Any], url: str | None, key_env: str | None) -> bool:
    if key_env is not None:
        return True
    if not settings or settings.get("key") == "optional":
        return False
    return url is None or not is_loopback(url)


def _preset_at(url: str, presets: Mapping[str, Mapping[str, Any]]) -> str | None:
    host = urlsplit(url).hostname
    for name, settings in presets.items():
        known = urlsplit(settings.get("url", "")).hostname
        if known == host and known is not None and not is_loopback(url):
            return name
    return None


def _unknown(model: str, presets: Mapping[str, Any]) -> str:
    head, slash, _ = model.partition("/")
    if not slash:
        return f"{model!r} names no preset; write PRESET/NAME, for example openai/{model}, or give its URL with --url"
    near = get_close_matches(head, presets, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else "."
    known = ", ".join(sorted(presets))
    return f"{head!r} in {model!r} is no preset{meant} Presets are {known}; for any other server give --url"
