"""Runs whose plots nobody looks at: to make and draw them would take a third of a run's time."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from reports import charts


class _Unseen:
    """A plot that is made when somebody looks at it, as a report does."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Runs of this process name each plot in its place; `test_charts` draws them all."""
    for plot in (charts.days_plot, charts.shares_plot, charts.funnel_plot):
        patch.setattr(charts, plot.__name__, _unseen(plot))
    patch.setattr(charts, "as_markdown", lambda _, title: f"![{title}]()")


def _unseen(plot: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plot)
    def later(*arguments: Any, **options: Any) -> _Unseen:
        return _Unseen(partial(plot, *arguments, **options))

    return later
