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

from bench.timing import Timing

STORE = Path(__file__).with_name("results.json")
PAGE = Path(__file__).with_name("results.md")
SCALES = {"long": "Full sizes (`make bench LONG=1`)", "short": "Short run (`make bench`)"}
LIBRARIES = ("dagster", "duckdb", "pandera", "polars", "requests")

_HEAD = """\
# Benchmarks

Written by `make bench` and `make bench LONG=1`. The goals are for the full sizes; a short run tells whether
something has become slower than at the last short run. Each figure compares tries made in turns, each in a
process of its own; one that is not a ratio depends on the machine. Noise makes a try slower, never faster, so
verdicts come from the fastest tries; the medians stand beside them.
"""


@dataclass(frozen=True)
class Figure:
    """A measured value, and what is asked for by the goal of that number, if anything.

    `value` is from the fastest tries, `typical` from the medians: None where there is but one value.
    """

    goal: int
    what: str
    value: float
    typical: float | None
    unit: Literal["times", "s", "MB", "GB", "%"]
    sense: Literal["≤", "≥"] = "≤"
    bound: float | None = None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.bound is None:
            return ""
        met = self.value <= self.bound if self.sense == "≤" else self.value >= self.bound
        return "met" if met else "**not met**"


@dataclass(frozen=True)
class Experiment:
    """What was measured of one kind."""

    title: str
    timings: Sequence[Timing]
    figures: Sequence[Figure]
    notes: Sequence[str] = ()


def ratio(
    goal: int,
    what: str,
    one: Timing,
    other: Timing,
    sense: Literal["≤", "≥"] = "≤",
    bound: float | None = None,
) -> Figure:
    """How many times as long as `other` `one` takes."""
    return Figure(goal, what, one.minimum / other.minimum, one.median / other.median, "times", sense, bound)


def seconds(goal: int, what: str, one: Timing, bound: float) -> Figure:
    """How many seconds `one` takes; at most `bound` are asked for."""
    return Figure(goal, what, one.minimum, one.median, "s", "≤", bound)


def memory(goal: int, what: str, one: Timing, bound_gb: float) -> Figure:
    """How much memory `one` takes at its peak; at most `bound_gb` is asked for."""
    return Figure(goal, what, one.peak_bytes / 1e9, None, "GB", "≤", bound_gb)


def keep(scale: str, name: str, found: Experiment) -> None:
    """Store what an experiment measured in place of what it measured before, and write the page anew."""
    stored = measured()
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


def measured() -> dict[str, dict[str, Any]]:
    """What the experiments measured last, by scale and name."""
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}


def machine() -> str:
    """The machine and the libraries, in words; how busy it was beside, for others may work on it."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    busy = f"load {os.getloadavg()[2]:.1f} in the last quarter of an hour"
    return (
        f"{os.cpu_count()} cores, {gigabytes:.0f} GB, {busy}; Python {platform.python_version()}, {libraries}"
    )


def page(stored: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The whole page as Markdown."""
    sections = (line for scale in SCALES if scale in stored for line in _scale(scale, stored[scale]))
    return "\n".join([_HEAD, *sections])


def _scale(scale: str, experiments: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"## {SCALES[scale]}\n"
    judged = scale == "long"
    yield "| goal | | fastest tries | medians |" + " asked for | |" * judged
    yield "|---:|---|---:|---:|" + "---:|---|" * judged
    figures = [Figure(**figure) for found in experiments.values() for figure in found["figures"]]
    for figure in sorted(figures, key=lambda figure: figure.goal):
        yield _line(figure) + (_verdict(figure) if judged else "")
    by_goal = sorted(experiments.values(), key=lambda found: found["figures"][0]["goal"])
    for found in by_goal:
        yield f"\n### {found['title']}\n"
        yield "| | fastest | median | processor | tries | peak memory | counted |"
        yield "|---|---:|---:|---:|---:|---:|---|"
        yield from found["contenders"]
        yield ""
        yield from (f"- {note}" for note in (*found["notes"], f"Measured {found['measured']}."))
    yield ""


def _line(figure: Figure) -> str:
    typical = "" if figure.typical is None else f"{figure.typical:.2f} {figure.unit}"
    return f"| {figure.goal} | {figure.what} | {figure.value:.2f} {figure.unit} | {typical} |"


def _verdict(figure: Figure) -> str:
    bound = "" if figure.bound is None else f"{figure.sense} {figure.bound:g} {figure.unit}"
    return f" {bound} | {figure.verdict} |"


def _row(timing: Timing) -> str:
    counts = ", ".join(f"{value:,} {name}" for name, value in timing.counts.items())
    return (
        f"| {timing.name} | {timing.minimum:.2f} s | {timing.median:.2f} s | {timing.cpu:.2f} s | "
        f"{len(timing.samples)} | {timing.peak_bytes / 1e6:,.0f} MB | {counts} |"
    )
