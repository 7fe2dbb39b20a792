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
    `unsent_key_env` names a variable whose key is for the preset's own servers, and this URL is none of them.
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
    unsent_key_env: str | None = None

    @property
    def host(self) -> str:
        """host:port (or host), fit to show; `local` for the embedded model."""
        return urlsplit(self.url).netloc.rpartition("@")[2] or "local"

    @property
    def origin(self) -> str:
        """Where requests go, fit to show: scheme and host; `this machine` for the embedded model."""
        return f"{urlsplit(self.url).scheme}://{self.host}" if self.url else "this machine"


def resolve(model: str, url: str | None = None, *, key_env: str | None = None) -> ResolvedEndpoint:
    """The endpoint that `PRESET/NAME` means, or any name with `url`.

    A name without a preset takes the settings of the preset whose server `url` is.  A provider's preset at a URL that
    is not the provider's is no preset: the whole name is the model's.  The preset's key is used at its own origins
    only (scheme, host and port), any other URL gets a key that `key_env` names, or none.  Raises JobError.
    """
    presets = load_presets()
    preset, name = _named(model, url, presets)
    settings = presets[preset] if preset else {}
    is_own = url is None or is_own_origin(settings, url)
    return ResolvedEndpoint(
        model=name,
        url=_base_url(preset, settings, url),
        preset=preset,
        provider=settings.get("provider", "openai"),
        key_env=key_env or (settings.get("key_env") if is_own else None),
        key_required=key_env is not None or (is_own and _needs_key(settings)),
        unsent_key_env=None if key_env or is_own else presets.get(_head(model), settings).get("key_env"),
        auth=settings.get("auth", "bearer"),
        structured=settings.get("structured", "json_schema"),
        dialect=settings.get("dialect", "openai"),
        counts=settings.get("counts", "used"),
        headers=settings.get("headers", {}),
        first_in_flight=settings.get("first_in_flight", START),
        doubts_length=settings.get("doubts_length", False),
    )


def _named(model: str, url: str | None, presets: Mapping[str, Mapping[str, Any]]) -> tuple[str | None, str]:
    """(preset or None, the name that is sent)."""
    head, slash, name = model.partition("/")
    if slash and head in presets:
        if not name.strip():
            raise JobError(f"the model {model!r} has no name after the preset; write {head}/NAME")
        settings = presets[head]
        if url is None or _goes_with_any_url(settings) or is_own_origin(settings, url):
            return head, name
    if url is None:
        raise JobError(_unknown(model, presets))
    return _preset_at(url, presets), model


def _head(model: str) -> str:
    return model.partition("/")[0]


def _goes_with_any_url(settings: Mapping[str, Any]) -> bool:
    """Whether a preset says how a kind of server is spoken to, and not whose server it is."""
    return settings.get("key") == "optional" or "url" not in settings or "provider" in settings


def is_own_origin(settings: Mapping[str, Any], url: str) -> bool:
    """Whether a URL leads to a server of the preset's own: the same scheme, host and port."""
    wanted = _origin(url)
    known = [*settings.get("origins", ()), *([settings["url"]] if "url" in settings else ())]
    return any(_is_at(wanted, _origin(one)) for one in known)


def _origin(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", "", 0
    host = (parts.hostname or "").rstrip(".")
    scheme = parts.scheme.lower()
    return scheme, "localhost" if is_loopback(url) else host, port or (443 if scheme == "https" else 80)


def _is_at(wanted: tuple[str, str, int], known: tuple[str, str, int]) -> bool:
    if known[1].startswith("*."):
        return wanted[0] == known[0] and wanted[2] == known[2] and wanted[1].endswith(known[1][1:])
    return wanted == known


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
    return "url" not in settings or is_own_origin(settings, endpoint.url)


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


def _needs_key(settings: Mapping[str, Any]) -> bool:
    return bool(settings) and settings.get("key") != "optional"


def _preset_at(url: str, presets: Mapping[str, Mapping[str, Any]]) -> str | None:
    if is_loopback(url):  # several presets name the same port
        return None
    return next((name for name, settings in presets.items() if is_own_origin(settings, url)), None)


def _unknown(model: str, presets: Mapping[str, Any]) -> str:
    head, slash, _ = model.partition("/")
    if not slash:
        return f"{model!r} names no preset; write PRESET/NAME, for example openai/{model}, or give its URL with --url"
    near = get_close_matches(head, presets, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else "."
    known = ", ".join(sorted(presets))
    return f"{head!r} in {model!r} is no preset{meant} Presets are {known}; for any other server give --url"
