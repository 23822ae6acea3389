"""What was measured, kept in results.json and shown in results.md.

An experiment replaces what it measured before at the same scale; everything else stays.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.timing import Contender, Timing, alternate

STORE = Path(__file__).with_name("results.json")
PAGE = Path(__file__).with_name("results.md")
SCALES = {"long": "Full sizes (`make bench LONG=1`)", "short": "Short run (`make bench`)"}
LIBRARIES = ("dagster", "duckdb", "pandera", "polars", "requests")

_HEAD = """\
# Benchmarks

Written by `make bench` and `make bench LONG=1`. The goals are for the full sizes, and a figure in bold misses
its goal; a short run tells whether something has become slower than at the last one. Each figure compares
tries made in turns, each in a process of its own; one that is not a ratio depends on the machine. Noise makes
a try slower, never faster, so the fastest tries count; the medians stand beside them.
"""


@dataclass(frozen=True)
class Figure:
    """A measured value, and what the goal of that number asks for at most, if anything.

    `value` is from the fastest tries, `typical` from the medians: None where there is but one value.
    """

    goal: int
    what: str
    value: float
    typical: float | None
    unit: Literal["times", "s", "MB", "GB", "%"]
    bound: float | None = None


@dataclass(frozen=True)
class Experiment:
    """What was measured of one kind."""

    title: str
    timings: Sequence[Timing]
    figures: Sequence[Figure]
    notes: Sequence[str] = ()


def ratio(goal: int, what: str, bound: float, one: Timing, other: Timing) -> Figure:
    """How many times as long as `other` `one` takes."""
    return Figure(goal, what, one.minimum / other.minimum, one.median / other.median, "times", bound)


def compare(
    title: str,
    goal: int,
    what: str,
    bound: float,
    ours: Contender,
    bare: Contender,
    tries: int,
    notes: Sequence[str],
    **asked: Any,
) -> Experiment:
    """Time what we do against the least that would do the same; `asked` as `alternate` has it."""
    timings = alternate([ours, bare], tries, **asked)
    return Experiment(title, timings, [ratio(goal, what, bound, *timings)], notes)


def keep(scale: str, name: str, found: Experiment) -> None:
    """Store what an experiment measured in place of what it measured before, and write the page anew."""
    stored = json.loads(STORE.read_text(encoding="utf-8"))
    stored.setdefault(scale, {})[name] = {
        "title": found.title,
        "measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M} on {machine()}",
        "contenders": [_row(timing) for timing in found.timings],
        "figures": [asdict(figure) for figure in found.figures],
        "notes": list(found.notes),
    }
    text = json.dumps(stored, indent=1, sort_keys=True, ensure_ascii=False)
    STORE.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(stored), encoding="utf-8")


def machine() -> str:
    """The machine and the libraries, in words; how busy it was beside, for others may work on it."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    busy = f"load {os.getloadavg()[2]:.1f} in the last quarter of an hour"
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {gigabytes:.0f} GB, {busy}; {python}, {libraries}"


def page(stored: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The whole page as Markdown."""
    sections = (line for scale in SCALES if scale in stored for line in _scale(scale, stored[scale]))
    return "\n".join([_HEAD, *sections])


def _scale(scale: str, experiments: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"## {SCALES[scale]}\n"
    yield "| goal | | fastest tries | medians | asked for |"
    yield "|---:|---|---:|---:|---:|"
    figures = [Figure(**figure) for found in experiments.values() for figure in found["figures"]]
    yield from map(_line, sorted(figures, key=lambda figure: figure.goal))
    for found in sorted(experiments.values(), key=lambda found: found["figures"][0]["goal"]):
        yield f"\n### {found['title']}\n"
        yield "| | fastest | median | processor | tries | peak memory | counted |"
        yield "|---|---:|---:|---:|---:|---:|---|"
        yield from found["contenders"]
        yield ""
        yield from (f"- {note}" for note in (*found["notes"], f"Measured {found['measured']}."))
    yield ""


def _line(figure: Figure) -> str:
    unit, bound = figure.unit, figure.bound
    typical = "" if figure.typical is None else f"{figure.typical:.2f} {unit}"
    asked, mark = ("", "") if bound is None else (f"≤ {bound:g} {unit}", "**" * (figure.value > bound))
    return f"| {figure.goal} | {figure.what} | {mark}{figure.value:.2f} {unit}{mark} | {typical} | {asked} |"


def _row(timing: Timing) -> str:
    counts = ", ".join(f"{value:,} {name}" for name, value in timing.counts.items())
    return (
        f"| {timing.name} | {timing.minimum:.2f} s | {timing.median:.2f} s | {timing.cpu:.2f} s | "
        f"{len(timing.samples)} | {timing.peak_bytes / 1e6:,.0f} MB | {counts} |"
    )
