"""The documentation tells the truth: its commands, options and links exist."""

from __future__ import annotations

import re
import shlex
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from rowmill.cli import app
from rowmill.job import load_job
from rowmill.simulator.__main__ import parser

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def code_lines(page: Path) -> Iterator[str]:
    """Lines inside fenced shell blocks, continuation lines joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for block in re.findall(r"```(?:sh|console|bash)\n(.*?)```", text, re.DOTALL):
        yield from block.splitlines()


def calls() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for line in code_lines(page):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["rowmill"]:
                found.append((f"{page.name}: {line.strip()}", words[1:]))
    return found


def test_the_readme_shows_commands() -> None:
    assert len(calls()) >= 5


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in calls()])
def test_every_command_and_option_shown_exists(words: list[str]) -> None:
    if words[0].startswith("-"):
        assert words[0] in ("--version", "--help")
        return
    if words[0] == "simulate":  # it reads its arguments itself
        parser().parse_args(words[1:])
        return
    options = {name for parameter in COMMANDS[words[0]].params for name in parameter.opts}
    shown = {word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
    assert shown <= options | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    relative = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in relative if not (page.parent / link).exists()] == []


# Strict, so that the mark must go as soon as repair, fallback, expect and budgets can be written in a job.
EXAMPLES = sorted(ROOT.glob("examples/*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_a_valid_job_with_its_input(path: Path) -> None:
    job = load_job(str(path), {})
    assert Path(job.source).is_file()


def test_the_makefile_has_the_targets_that_the_documents_name() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`?make ([a-z]+)", " ".join(code_lines(page)))}
    assert named
    assert named <= targets


@pytest.mark.parametrize("picture", sorted(ROOT.glob("docs/*.svg")), ids=lambda path: path.name)
def test_no_picture_names_a_folder_of_the_machine_that_drew_it(picture: Path) -> None:
    written = re.findall(r">([^<>]*)</(?:text|title)>", picture.read_text(encoding="utf-8"))
    assert written
    assert [text for text in written if re.search(r"(?:^|[\s('\"])/[\w.-]+/", text)] == []


PACKAGE = ROOT / "src" / "rowmill"
BUILT_PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", *sorted(ROOT.glob("docs/explanation/*.md"))]


def named_files(page: Path) -> list[str]:
    """Files of the tree that a page names; of a table of moves only where they are now."""
    text = page.read_text(encoding="utf-8")
    if page.name == "moved.md":
        text = "\n".join(line.split("|")[2] for line in text.splitlines() if line.startswith("| `"))
    return re.findall(r"`([\w./-]+\.(?:py|sql|toml))`", text)


@pytest.mark.parametrize("page", BUILT_PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_about_the_tree_names_is_there(page: Path) -> None:
    missing = [name for name in named_files(page) if not ((PACKAGE / name).exists() or (ROOT / name).exists())]
    assert missing == []


def test_the_map_of_moves_names_where_modules_are() -> None:
    page = ROOT / "docs" / "explanation" / "moved.md"
    assert not page.exists() or len(named_files(page)) > 100


# Words that the glossary has others for, as parts of names.  The simulator's front desk is one.
RETIRED = {
    "charged",
    "desk",
    "fact",
    "facts",
    "heir",
    "heirs",
    "outbox",
    "parked",
    "place",
    "places",
    "purse",
    "roster",
    "seal",
    "seals",
    "strays",
    "tally",
    "trial",
    "trials",
}
ROOMS = sorted(path for path in PACKAGE.iterdir() if path.name != "simulator" and path.suffix in ("", ".py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_words_that_were_retired_do_not_come_back(room: Path) -> None:
    found = set()
    for path in [room] if room.is_file() else sorted(room.glob("**/*.py")):
        with path.open(encoding="utf-8") as lines:
            names = {token.string for token in tokenize.generate_tokens(lines.readline) if token.type == tokenize.NAME}
        for name in names | {path.stem}:
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
            if words & RETIRED:
                found.add(f"{path.relative_to(PACKAGE)}: {name}")
    assert found == set(), "see docs/explanation/glossary.md"
