"""Sources that cannot be reached say why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.test_source_files import refusal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nope://host/in.csv", "nope:// is no kind of URL that fsspec knows"),
        ("gs://bucket/in.csv", "pip install gcsfs"),
        ("http://127.0.0.1:9/in.csv", "Connect call failed"),
    ],
)
def test_a_url_that_cannot_be_reached_is_refused_with_the_reason(url: str, reason: str) -> None:
    assert reason in refusal(url)


@pytest.mark.parametrize(
    ("module", "spec", "extra"),
    [
        ("fsspec.core", "s3://bucket/in.csv", "rowmill[remote]"),
        ("s3fs", "s3a://bucket/in.csv", "rowmill[remote]"),
        ("python_calamine", "in.xlsx", "rowmill[excel]"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, spec: str, extra: str
) -> None:
    (tmp_path / "in.xlsx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert f"pip install '{extra}'" in refusal(spec)
