"""Keys: where they come from, and that they go nowhere else."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from rowmill.errors import FailureKind, JobError
from rowmill.providers.credentials import Credentials, redact, spellings
from rowmill.providers.presets import resolve
from rowmill.records import Failure

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-proj-a/b+c=0123456789"


def test_the_key_comes_from_the_presets_variable() -> None:
    found = Credentials(resolve("openai/x"), environment={"OPENAI_API_KEY": KEY})
    assert found.headers["authorization"] == f"Bearer {KEY}"
    assert KEY.encode() in found.secrets


def test_azure_gets_its_own_header() -> None:
    endpoint = resolve("azure/x", "https://x.openai.azure.com/openai/v1")
    found = Credentials(endpoint, environment={"AZURE_OPENAI_API_KEY": KEY})
    assert found.headers["api-key"] == KEY
    assert "authorization" not in found.headers


def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(JobError, match="OPENAI_API_KEY"):
        Credentials(resolve("openai/x"), environment={"OPENAI_API_KEY": " "})


def test_servers_at_home_need_no_key_but_take_one() -> None:
    assert "authorization" not in Credentials(resolve("vllm/x"), environment={}).headers
    found = Credentials(resolve("vllm/x"), environment={"VLLM_API_KEY": "token"})
    assert found.headers["authorization"] == "Bearer token"


def test_a_key_file_is_read_and_its_line_end_dropped(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    found = Credentials(resolve("openai/x"), key_file=str(path), environment={})
    assert found.headers["authorization"] == f"Bearer {KEY}"


def test_a_key_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read"):
        Credentials(resolve("openai/x"), key_file=str(tmp_path / "none"), environment={})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(JobError, match="holds no key"):
        Credentials(resolve("openai/x"), key_file=str(tmp_path / "empty"), environment={})


@pytest.mark.parametrize("key", ["sk-first\nsk-second", "two words", "sk-schlüssel", "sk-\x00"])
def test_a_key_that_cannot_stand_in_a_header_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(JobError) as refused:
        Credentials(resolve("openai/x"), environment={"OPENAI_API_KEY": key})
    assert "OPENAI_API_KEY" in str(refused.value)
    assert key not in str(refused.value)


def test_headers_take_values_from_variables_and_hide_them() -> None:
    found = Credentials(
        resolve("vllm/x"),
        headers={"X-Team": "$TEAM_TOKEN", "X-Plain": "yes"},
        environment={"TEAM_TOKEN": "team secret 1"},
    )
    assert (found.headers["x-team"], found.headers["x-plain"]) == ("team secret 1", "yes")
    assert found.secrets == spellings(["team secret 1"])
    with pytest.raises(JobError, match="X-Team needs the environment variable TEAM_TOKEN"):
        Credentials(resolve("vllm/x"), headers={"X-Team": "$TEAM_TOKEN"}, environment={})


def test_a_new_key_is_taken_up_on_reload() -> None:
    environment = {"OPENAI_API_KEY": "sk-old-key"}
    found = Credentials(resolve("openai/x"), environment=environment)
    assert not found.reload()
    environment["OPENAI_API_KEY"] = "sk-new-key"
    assert found.reload()
    assert found.headers["authorization"] == "Bearer sk-new-key"
    environment.clear()
    with pytest.raises(JobError):
        found.reload()
    assert found.headers["authorization"] == "Bearer sk-new-key"


@pytest.mark.parametrize(
    "echo",
    [
        f"Incorrect key {KEY}.",
        json.dumps({"error": KEY}),
        json.dumps({"error": KEY}).replace("/", "\\/"),
        "https://x/?key=sk-proj-a%2Fb%2Bc%3D0123456789",
    ],
)
def test_an_echoed_key_is_masked_however_it_is_spelled(echo: str) -> None:
    clean = redact(echo.encode(), spellings([KEY]))
    assert b"***" in clean
    assert not re.search(rb"0123456789|sk-proj", clean)


def test_a_body_without_the_key_is_the_same_object() -> None:
    body = b"nothing here"
    assert redact(body, spellings([KEY])) is body


def test_placeholders_are_no_secrets() -> None:
    assert redact(b"the field is EMPTY", spellings(["EMPTY"])) == b"the field is EMPTY"


@pytest.mark.parametrize("name", ["X-Region", "X-Title", "HTTP-Referer", "X-Monkey", "X-Trace-Id"])
def test_a_plain_header_is_no_secret(name: str) -> None:
    found = Credentials(resolve("vllm/x"), headers={name: "$VALUE"}, environment={"VALUE": "us-east-1-sentiment"})
    assert found.secrets == ()


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "api-key", "X-Goog-Api-Key", "X_AUTH_TOKEN", "Cookie"])
def test_a_header_that_carries_a_credential_is_one(name: str) -> None:
    found = Credentials(resolve("vllm/x"), headers={name: "$VALUE"}, environment={"VALUE": "Bearer very-secret-1"})
    assert redact(b"very-secret-1", found.secrets) == b"***"


def test_a_key_that_reads_like_a_word_is_not_torn_out_of_one() -> None:
    hidden = spellings(["sentiment"])
    assert redact(b"sentimental, not \\nsentiment", hidden) == b"sentimental, not \\n***"


def test_any_other_key_is_taken_out_wherever_it_stands() -> None:
    assert redact(b"xsk-12345678y", spellings(["sk-12345678"])) == b"x***y"


def test_a_refusal_says_which_key_was_not_sent() -> None:
    endpoint = resolve("openai/x", "http://127.0.0.1:9/v1")
    refused = Failure(FailureKind.CREDENTIALS, "HTTP 401; check the key")
    said = Credentials(endpoint, environment={"OPENAI_API_KEY": "sk-12345678"}).explained(refused).message
    assert "OPENAI_API_KEY" in said
    assert "--key-env" in said
    assert "sk-12345678" not in said
    assert Credentials(endpoint, environment={}).explained(refused) is refused
