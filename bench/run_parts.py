"""Where the time of a run goes: the command line, or the bare job, in this process with its parts timed.

A part that lies within another is taken out of it, so that they add up to the whole.
"""

import runpy
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

REST = "planning, and going from step to step"


class Parts:
    """Seconds by part; always exactly one part is on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._on = [REST]
        self._since = time.perf_counter()

    def __call__(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted as the part's."""

        def timed(*arguments: Any, **named: Any) -> Any:
            with self.on(part):
                return function(*arguments, **named)

        return timed

    def each(self, part: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The generator, its time counted as the part's; not the time of whoever takes what it gives."""

        def timed(*arguments: Any, **named: Any) -> Iterator[Any]:
            given = function(*arguments, **named)
            take, end = self(part, next), object()
            while (item := take(given, end)) is not end:
                yield item

        return timed

    @contextmanager
    def on(self, part: str) -> Generator[None]:
        """Count the block's time as the part's."""
        self.turn()
        self._on.append(part)
        try:
            yield
        finally:
            self.turn()
            self._on.pop()

    def turn(self) -> None:
        """Count the time until now."""
        now = time.perf_counter()
        self.seconds[self._on[-1]] += now - self._since
        self._since = now


def run(script: str, arguments: Sequence[str]) -> Callable[[], dict[str, Any]]:
    """What `python SCRIPT ARGUMENTS` does, with its parts."""

    def timed() -> dict[str, Any]:
        parts = Parts()
        with parts.on("imports"):
            import dagster as dg  # noqa: PLC0415  (timed)
            from dagster._core.execution.plan import compute  # noqa: PLC0415  (timed)

            from bench import bare_job  # noqa: PLC0415  (timed: it imports whatever a run does)

        def time_it(owner: Any, name: str, part: str, how: Callable[..., Any] = parts) -> None:
            setattr(owner, name, how(part, getattr(owner, name)))

        time_it(bare_job.run, "build_definitions", "definitions")
        time_it(dg.Definitions, "resolve_job_def", "definitions")
        time_it(dg.DagsterInstance, "from_config", "opening Dagster's instance")
        time_it(dg.DagsterInstance, "handle_new_event", "storing Dagster's events")
        time_it(compute, "_yield_compute_results", "what the steps are for", parts.each)
        sys.argv = [script, *arguments]
        with patch("os._exit", sys.exit), suppress(SystemExit):  # this process has yet to tell
            runpy.run_path(script, run_name="__main__")
        parts.turn()
        return {"parts": dict(sorted(parts.seconds.items(), key=lambda part: -part[1]))}

    return timed
