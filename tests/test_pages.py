"""The pages of docs/ say what the tree has: no rule, test or command may lead nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

from docs.make.promises_page import PROMISES, promises_page
from ownership.declaration import columns_of
from ownership.tables import LogonCounts
from pipelines.cli.app import app
from resources.search.asking import COUNTED_APART

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".html", ".json", ".js", ".css", ".sql", ".toml", ".yaml"}

NUMBER = r"\d+(?:\.\d+)?"
NEXT = r"[ \n#]+"  # what may lie between two words, also of a comment that goes on in the next line
CITATION = re.compile(
    rf"\brules?{NEXT}({NUMBER}(?:(?:,|,?{NEXT}(?:to|and|or)){NEXT}{NUMBER})*)", re.IGNORECASE
)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text of the project: nothing that is installed, made by a run, or hidden."""
    for entry in sorted(ROOT.iterdir()):
        if not entry.name.startswith(".") and entry.name not in {"var", "instances"}:
            for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
                if path.suffix in SUFFIXES or path.name == "Makefile":
                    yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def numbers() -> list[str]:
    """The numbers of sections and rules in the order of the page."""
    found = re.findall(r"^(?:## (\d+) |\*\*(\d+\.\d+) )", page("rules.md"), re.MULTILINE)
    return [section or rule for section, rule in found]


def test_rules_are_numbered_without_a_gap():
    section = rule = 0
    for number in numbers():
        if "." in number:
            rule += 1
            assert number == f"{section}.{rule}"
        else:
            section, rule = section + 1, 0
            assert number == str(section)
    assert section


def test_every_citation_leads_to_a_rule():
    cited = {
        (number, str(path))
        for path, text in texts()
        for citation in CITATION.findall(text)
        for number in re.findall(NUMBER, citation)
    }
    known = set(numbers())
    assert not [one for one in cited if one[0] not in known], "cited, but not in docs/rules.md"


def test_what_is_counted_apart_is_in_the_key_of_the_counts_and_in_the_rule_of_what_is_kept():
    assert {*LogonCounts.__key__, "events"} == {*columns_of(LogonCounts)}
    kept = page("rules.md").partition("**4.4 ")[2].partition("**4.5 ")[0]
    assert all(f"`{name}_field`" in kept for name in COUNTED_APART)


def test_every_promise_has_tests_that_exist_and_is_on_the_page():
    promises = yaml.safe_load(PROMISES.read_text(encoding="utf-8"))
    numbered = {number: promise for number, promise in promises.items() if number != "not promised"}
    assert {int(number.rstrip("abcde")) for number in numbered} == set(range(17))
    for test in (test for promise in numbered.values() for test in promise["tests"]):
        file, *_, name = test.split("::")
        assert re.search(rf"\bdef {name}\(", (ROOT / file).read_text(encoding="utf-8")), test
    assert page("promises.md") == promises_page(), "run `make docs`"


def test_every_command_on_the_pages_exists_with_its_options():
    commands: Any = typer.main.get_command(app)
    context = commands.make_context("asset-owners", ["docs"], resilient_parsing=True)
    called = re.compile(r"(?:^ {4,}|`)(?:\S*/)?asset-owners ([a-z]+)([^`#|]*?)(?:[`#|]|$)", re.MULTILINE)
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for name, words in called.findall(path.read_text(encoding="utf-8")):
            assert name in commands.list_commands(context), f"{path.name}: {name}"
            command = commands.resolve_command(context, [name])[1]
            options = {option for parameter in command.params for option in parameter.opts}
            assert set(re.findall(r"(?<!\S)--[a-z-]+", words)) <= options, f"{path.name}: {name}{words}"
