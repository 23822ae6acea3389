"""Clocks that tests turn: one to hand over, and the program's own time of day.

The program takes the time of day from `datetime.now`, and nothing else of it is set: whatever measures how
long something takes (time limits, Retry-After, the age of a reading or a session) goes on by the true clock.
"""

import signal
from contextlib import contextmanager
from datetime import datetime, tzinfo
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import dagster as dg
import pytest

import assets_defs
import pipelines.cli
import reports
import resources


class Clock:
    """Gives the time; to sleep is to turn it, and `naps` keeps for how long."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    monotonic = __call__

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


def set_clock(patch: pytest.MonkeyPatch, now: datetime) -> None:
    """Let it be `now` for the program; its clock goes on from there."""
    # A module that is imported later would have the true clock.
    program = [
        import_module(found.name)
        for package in (assets_defs, pipelines.cli, reports, resources)
        for found in walk_packages(package.__path__, f"{package.__name__}.")
    ]
    ahead = now - datetime.now(now.tzinfo)

    class AnyTime(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, datetime)

    class Simulated(datetime, metaclass=AnyTime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + ahead

    for module in program:
        if getattr(module, "datetime", None) is datetime:
            patch.setattr(module, "datetime", Simulated)


@contextmanager
def interrupted(*, after):
    """What is done here is interrupted after so many seconds, as a run is that was told to end."""

    def interrupt(*_):
        raise dg.DagsterExecutionInterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        with pytest.raises(dg.DagsterExecutionInterruptedError):
            yield
    finally:
        signal.signal(signal.SIGALRM, before)
