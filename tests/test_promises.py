"""The page of promises names a test for each promise; none may be a name only."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_promise_names_tests_that_exist():
    guide = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    promises = re.findall(r"^- \*\*(\d+)\w?\*\* (.*)", guide, re.MULTILINE)
    assert {int(number) for number, _ in promises} == set(range(17))
    for number, line in promises:
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::\w+)?::(test_\w+)`", line)
        assert tests, f"nothing holds promise {number}"
        for file, name in tests:
            assert re.search(rf"\bdef {name}\(", (ROOT / file).read_text(encoding="utf-8")), f"{file}::{name}"
