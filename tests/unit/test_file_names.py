"""What the name of a file tells by itself."""

from __future__ import annotations

import pytest

from rowmill.core.names.files import (
    default_run_file,
    held_secret,
    is_remote,
    leaf,
    scheme,
    without_file_scheme,
    without_queries,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/in.csv", "s3"),
        ("HTTPS://host/in.csv", "https"),
        ("simplecache::s3://bucket/in.csv", "s3"),
        ("in.csv", None),
        ("/data/a://b.csv", None),
        ("-", None),
    ],
)
def test_the_scheme_is_what_stands_before_the_slashes(path: str, expected: str | None) -> None:
    assert scheme(path) == expected
    assert is_remote(path) == (expected is not None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/a/in.csv", "in.csv"),
        ("https://host/a/in%20put.csv?x=/y.tsv", "in put.csv"),
        ("s3://bucket/what?.csv", "what?.csv"),
        ("a/b.csv", "b.csv"),
        ("s3://bucket/parts/", "parts"),
    ],
)
def test_the_leaf_is_the_files_own_name(path: str, expected: str) -> None:
    assert leaf(path) == expected


def test_a_file_scheme_is_a_path() -> None:
    assert without_file_scheme("file:///data/in.csv") == "/data/in.csv"
    assert without_file_scheme("file://localhost/data/in.csv") == "/data/in.csv"
    assert without_file_scheme("s3://bucket/in.csv") == "s3://bucket/in.csv"


@pytest.mark.parametrize(
    "url",
    [
        "https://host/in.csv?X-Amz-Signature=abc",
        "https://host/in.csv?a=1&token=abc",
        "https://user:abc@host/in.csv",
        "https://abc@host/in.csv",
        "sftp://user:abc@host/in.csv",
    ],
)
def test_a_url_with_a_secret_is_told_without_it(url: str) -> None:
    found = held_secret(url)
    assert found is not None
    assert "abc" not in found


@pytest.mark.parametrize("url", ["https://host/in.csv?page=2", "s3://bucket/a=1/in.csv", "sftp://user@host/a"])
def test_a_url_without_a_secret_is_let_pass(url: str) -> None:
    assert held_secret(url) is None


def test_queries_of_addresses_in_a_text_are_taken_off() -> None:
    text = "404 for url: 'https://cdn/x?Signature=abc', see http://help"
    assert without_queries(text) == "404 for url: 'https://cdn/x', see http://help"


def test_the_run_file_of_an_output_here_is_beside_it() -> None:
    assert default_run_file("folder/out.csv") == "folder/out.csv.rowmill"


def test_the_run_file_of_an_output_elsewhere_is_in_the_current_folder_and_its_own() -> None:
    one, other = default_run_file("s3://one/out.csv"), default_run_file("s3://other/out.csv")
    assert one != other
    assert one.startswith("out.csv.")
    assert one.endswith(".rowmill")
    assert "/" not in one + other
