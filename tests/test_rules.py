"""docs/rules.md numbers the rules, and the tree cites them by number: no citation may lead nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = ROOT / "docs" / "rules.md"
SUFFIXES = {".py", ".md", ".html", ".json", ".js", ".css", ".sql", ".toml", ".yaml"}

NUMBER = r"\d+(?:\.\d+)?"
NEXT = r"[ \n#]+"  # what may lie between two words, also of a comment that goes on in the next line
CITATION = re.compile(
    rf"\brules?{NEXT}({NUMBER}(?:(?:,|,?{NEXT}(?:to|and|or)){NEXT}{NUMBER})*)", re.IGNORECASE
)
RANGE = re.compile(rf"({NUMBER}){NEXT}to{NEXT}({NUMBER})")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text of the project: nothing that is installed, made by a run, or hidden."""
    for entry in sorted(ROOT.iterdir()):
        if not entry.name.startswith(".") and entry.name not in {"var", "instances"}:
            for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
                if path.suffix in SUFFIXES or path.name == "Makefile":
                    yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def cited(text: str) -> set[str]:
    """The numbers of rules and sections that a text cites; of a range each one."""
    numbers: set[str] = set()
    for citation in CITATION.findall(text):
        numbers.update(re.findall(NUMBER, citation))
        for first, last in RANGE.findall(citation):
            section, _, begin = first.rpartition(".")
            end_section, _, end = last.rpartition(".")
            assert section == end_section, f"rules {first} to {last}: not within one section"
            assert int(begin) < int(end), f"rules {first} to {last}: the wrong way round"
            numbers.update(f"{section}.{rule}".lstrip(".") for rule in range(int(begin), int(end) + 1))
    return numbers


def sections() -> dict[str, list[str]]:
    """The sections of docs/rules.md, each with the numbers of its rules, in the order of the page."""
    found: dict[str, list[str]] = {}
    for section, rule in re.findall(
        r"^(?:## (\d+) |\*\*(\d+\.\d+) )", RULES.read_text(encoding="utf-8"), re.MULTILINE
    ):
        if section:
            assert section not in found, f"section {section} is there twice"
            found[section] = []
        else:
            assert found, f"rule {rule} comes before the first section"
            list(found.values())[-1].append(rule)
    return found


def test_rules_are_numbered_without_a_gap():
    for number, (section, rules) in enumerate(sections().items(), start=1):
        assert section == str(number)
        assert rules == [f"{section}.{rule}" for rule in range(1, len(rules) + 1)]
        assert rules, f"section {section} has no rule"


def test_every_citation_leads_to_a_rule():
    known = {*sections(), *(rule for rules in sections().values() for rule in rules)}
    unknown = {f"{path}: {number}" for path, text in texts() for number in cited(text) - known}
    assert not unknown, "cited, but not in docs/rules.md"


def test_nothing_cites_paragraphs_of_other_documents():
    sign = "\N{SECTION SIGN}"
    assert not [str(path) for path, text in texts() if sign in text], f"cite docs/rules.md instead of {sign}"
