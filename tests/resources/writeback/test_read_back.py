"""What a write has done to a host, from what it held before and holds now."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from resources.search.asking import leaves
from resources.writeback.decide import compare
from tests.resources.writeback.world import holding, values

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=400)
HERE = NOW + timedelta(hours=14)


def lost(before: Any, now: Any) -> bool:
    """Whether a field has lost something, where all else is right."""
    rows = [holding("h-0"), holding("h-0", "u-1")]
    others = [msgspec.json.encode([*leaves({"id": "h-0", "field": value})]) for value in (before, now)]
    readings = ({**row, "others": of_it} for row, of_it in zip(rows, others, strict=True))
    found = compare("pc-0", *readings, values("u-1"), "Owners@corp.example")
    assert (found.unseen, found.ignored) == (None, [])
    assert set(found.lost) <= {"field"} | {f"field.{name}" for name in "ab"}
    return bool(found.lost)


@pytest.mark.parametrize(
    ("before", "now", "is_lost"),
    [("u-1", "", False), ("u-1", None, False), ("u-1", "u-2", True), ("Ann", None, True)],
)
def test_a_copy_of_what_a_write_set_is_not_a_loss(before, now, is_lost):
    rows = [holding("h-0", "u-1", "Sales"), holding("h-0", None, "Old")]
    others = [[["owner.id", before], ["dept", "Sales"]], [["owner.id", now], ["dept", "Old"]]]
    readings = [
        {**row, "others": msgspec.json.encode([pair for pair in of_it if pair[1]])}
        for row, of_it in zip(rows, others, strict=True)
    ]
    assert list(compare("pc-0", *readings, values("", "Old"), "").lost) == ["owner.id"] * is_lost


@pytest.mark.parametrize("empty", [None, "", [], {}, [None], {"a": None}], ids=str)
@pytest.mark.parametrize("value", ["Hall 3", 0, False, ["a"], {"a": 1}, [{"a": 1}]], ids=str)
def test_what_is_gone_is_lost_and_what_was_empty_is_not(empty, value):
    assert lost(value, empty)
    assert not lost(empty, value)
    assert not lost(empty, None)
    assert not lost(value, value)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["a", "b", "a"], ["a", "a", "b"]),
        (["a"], ["b", "a"]),
        ("a", ["a"]),
        (5, "5"),
        ([{"a": 1, "b": 2}, {"a": 3}], [{"a": 3}, {"b": 2, "a": 1}]),
        ({"a": 1}, {"a": 1, "b": 2}),
    ],
)
def test_another_order_or_form_and_a_further_value_are_not_a_loss(before, now):
    assert not lost(before, now)


LOST = {
    "text": ("Hall 3", "Hall 4"),
    "a default": (True, False),
    "zero": (5, 0),
    "much more": (5, 9),
    "less": (5, 4),
    "fewer": (["a", "a"], ["a"]),
    "swapped": ({"a": "x", "b": "y"}, {"a": "y", "b": "x"}),
    "the time, of text": ("Hall 3", NOW.isoformat()),
    "another time": (LONG_AGO.isoformat(), (NOW + timedelta(hours=26)).isoformat()),
    "another time in seconds": (int(LONG_AGO.timestamp()), int(LONG_AGO.timestamp()) + 86_400),
    "a day, of a time": (LONG_AGO.isoformat(), NOW.date().isoformat()),
    "today": (LONG_AGO.date().isoformat(), NOW.date().isoformat()),
    "long numbers": ("1" * 5000, "1" * 4999 + "2"),
    "somebody": ("person", "owners2"),
}


@pytest.mark.parametrize("name", LOST)
def test_another_value_is_a_loss(name):
    assert lost(*LOST[name])


MARKS = {
    "time": (LONG_AGO.isoformat(), NOW.isoformat()),
    "in UTC": (f"{LONG_AGO:%Y-%m-%dT%H:%M:%SZ}", f"{NOW:%Y-%m-%dT%H:%M:%SZ}"),
    "elsewhere": (f"{LONG_AGO:%Y-%m-%d %H:%M:%S}", f"{HERE:%Y-%m-%d %H:%M:%S}"),
    "seconds": (int(LONG_AGO.timestamp()), int(NOW.timestamp())),
    "milliseconds": (int(LONG_AGO.timestamp() * 1000), str(int(NOW.timestamp() * 1000))),
    "fractions": (LONG_AGO.timestamp(), NOW.timestamp()),
    "counter": (5, 6),
    "counter of fields": ("5", "8"),
    "account": ("person@corp.example", "owners@CORP.example"),
    "account's name": ("person", "owners"),
    "of several": ([{"a": "person", "b": 5}], [{"b": 6, "a": "owners"}]),
    "one more": ([{"a": 1}], [{"a": 1}, {"a": 2}]),
    "one more and one further": ([{"a": 1}], [{"a": 2}, {"a": 7}]),
}


@pytest.mark.parametrize("name", MARKS)
def test_the_marks_of_a_write_are_not_a_loss(name):
    assert not lost(*MARKS[name])
