"""Which server a model name means."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

import pytest

from rowmill.errors import JobError
from rowmill.providers.presets import chat_url, load_presets, resolve


def test_a_preset_gives_address_key_and_habits() -> None:
    found = resolve("openai/gpt-4o-mini")
    assert (found.model, found.url) == ("gpt-4o-mini", "https://api.openai.com/v1/chat/completions")
    assert (found.key_env, found.key_required) == ("OPENAI_API_KEY", True)
    assert (found.structured, found.dialect, found.counts) == ("json_schema", "openai", "max_tokens")
    assert found.host == "api.openai.com"


def test_only_the_first_part_of_a_name_is_the_preset() -> None:
    found = resolve("vllm/meta-llama/Meta-Llama-3-8B-Instruct")
    assert found.model == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert found.url == "http://localhost:8000/v1/chat/completions"
    assert not found.key_required


def test_a_url_replaces_the_presets() -> None:
    found = resolve("vllm/x", "http://10.0.0.7:9000/v1")
    assert (found.url, found.preset) == ("http://10.0.0.7:9000/v1/chat/completions", "vllm")


def test_any_name_goes_with_an_address() -> None:
    found = resolve("Qwen/Qwen3-8B", "http://localhost:1/v1")
    assert (found.model, found.preset, found.key_required) == ("Qwen/Qwen3-8B", None, False)


def test_a_known_host_brings_its_preset() -> None:
    found = resolve("gpt-4o-mini", "https://api.openai.com/v1")
    assert (found.model, found.preset, found.key_env) == ("gpt-4o-mini", "openai", "OPENAI_API_KEY")


def test_a_preset_on_the_loopback_needs_no_key() -> None:
    assert not resolve("openai/x", "http://127.0.0.1:9/v1").key_required
    assert resolve("openai/x", "http://127.0.0.1:9/v1", key_env="MINE").key_required


def test_azure_takes_its_key_in_a_header_of_its_own() -> None:
    found = resolve("azure/gpt", "https://x.openai.azure.com/openai/deployments/gpt?api-version=2024-06-01")
    assert found.auth == "api-key"
    assert found.url.endswith("/deployments/gpt/chat/completions?api-version=2024-06-01")


@pytest.mark.parametrize(
    ("base", "posted"),
    [
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("http://h:1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1/api?v=1", "http://h:1/api/chat/completions?v=1"),
    ],
)
def test_the_path_is_added_once_and_the_query_kept(base: str, posted: str) -> None:
    assert chat_url(base) == posted


@pytest.mark.parametrize(
    ("model", "url", "words"),
    [
        ("opnai/gpt", None, "did you mean openai"),
        ("gpt-4o-mini", None, "openai/gpt-4o-mini"),
        ("nowhere/x", None, "--url"),
        ("azure/gpt", None, "azure needs --url"),
        ("openai/", None, "no name after the preset"),
        ("vllm/x", "localhost:8000", "not a URL"),
        ("local/smollm2", "http://localhost:1", "needs no --url"),
    ],
)
def test_what_cannot_be_resolved_is_refused_with_the_way_out(model: str, url: str | None, words: str) -> None:
    with pytest.raises(JobError, match=re.escape(words)):
        resolve(model, url)


ALLOWED: Mapping[str, Collection[object]] = {
    "auth": {"bearer", "api-key", "x-api-key"},
    "structured": {"json_schema", "json_object", "tool", "none"},
    "dialect": {"openai", "groq", "openrouter", "mistral", "anthropic", "none"},
    "counts": {"max_tokens", "used"},
    "key": {"required", "optional"},
    "provider": {"openai", "anthropic", "http", "local"},
    "first_in_flight": set(range(1, 9)),
    "doubts_length": {True},
}


@pytest.mark.parametrize("name", load_presets())
def test_every_preset_is_complete_and_uses_known_words(name: str) -> None:
    settings = load_presets()[name]
    assert set(settings) <= {*ALLOWED, "url", "origins", "key_env", "headers", "example"}
    assert all(settings[field] in words for field, words in ALLOWED.items() if field in settings)
    assert resolve(f"{name}/x", settings.get("example")).structured == settings["structured"]


def test_the_presets_that_are_promised_are_there() -> None:
    promised = (
        "openai vllm llamafactory ollama sglang groq together deepseek mistral openrouter dashscope moonshot zhipu "
        "siliconflow gemini azure anthropic http local"
    )
    assert set(promised.split()) <= set(load_presets())


HOSTED = [name for name, settings in load_presets().items() if settings.get("key") != "optional" and "url" in settings]


@pytest.mark.parametrize("name", load_presets())
@pytest.mark.parametrize("other", [name for name, settings in load_presets().items() if "url" in settings])
def test_a_presets_key_never_goes_to_another_presets_server(name: str, other: str) -> None:
    presets = load_presets()
    if presets[name].get("provider") == "local":
        return
    found = resolve(f"{name}/x", presets[other]["url"])
    own = presets[name].get("url"), *presets[name].get("origins", ())
    if presets[other]["url"] not in own:
        assert found.key_env in (None, presets[other].get("key_env"))
        assert found.key_env is None or found.key_env != presets[name].get("key_env") or found.preset == other


@pytest.mark.parametrize("name", HOSTED)
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "https://example.org/v1",
        "http://{host}/v1",
        "https://{host}:8443/v1",
        "https://{host}.example.org/v1",
        "https://{host}@example.org/v1",
    ],
)
def test_a_providers_key_goes_to_its_own_origin_only(name: str, url: str) -> None:
    host = urlsplit(load_presets()[name]["url"]).hostname or ""
    found = resolve(f"{name}/x", url.format(host=host))
    assert found.key_env is None
    assert not found.key_required
    assert found.unsent_key_env == load_presets()[name]["key_env"]


@pytest.mark.parametrize(
    "url", ["https://API.openai.com/v1", "https://api.openai.com:443/v1", "https://eu.api.openai.com/v1"]
)
def test_spellings_of_the_own_origin_are_the_own_origin(url: str) -> None:
    assert resolve("openai/gpt-4o-mini", url).key_env == "OPENAI_API_KEY"
    assert resolve("openai/gpt-4o-mini", url).model == "gpt-4o-mini"


def test_a_key_that_is_named_goes_where_it_is_named_for() -> None:
    assert resolve("openai/x", "http://127.0.0.1:9/v1", key_env="MINE").key_env == "MINE"


def test_a_providers_name_at_another_server_is_part_of_the_models() -> None:
    found = resolve("openai/gpt-oss-20b", "http://127.0.0.1:8000/v1")
    assert (found.model, found.preset) == ("openai/gpt-oss-20b", None)


def test_a_kind_of_server_keeps_its_habits_at_any_url() -> None:
    assert resolve("vllm/openai/gpt-oss-20b", "http://10.0.0.7:1/v1").model == "openai/gpt-oss-20b"
    assert resolve("anthropic/x", "https://example.org/anthropic/v1").provider == "anthropic"


def test_azures_own_servers_get_azures_key() -> None:
    assert resolve("azure/gpt", "https://mine.openai.azure.com/openai/v1").key_env == "AZURE_OPENAI_API_KEY"
    assert resolve("azure/gpt", "https://openai.azure.com.example.org/openai/v1").key_env is None
