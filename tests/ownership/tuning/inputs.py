"""What tuning rests on, for tests."""

from typing import Any

import polars as pl

from ownership.declaration import empty
from ownership.rules import Rules
from ownership.tables import OwnerDecisions, OwnerWrites
from ownership.tuning.inputs import Inputs
from tests.ownership.builders import PEOPLE, WINDOW


def inputs(logons: pl.LazyFrame, assets: pl.DataFrame, rules: Rules, **others: Any) -> Inputs:
    """These logons and assets, in a window that is stored whole; no writes, no decisions."""
    usual: dict[str, Any] = {
        "users": PEOPLE,
        "writes": empty(OwnerWrites),
        "decisions": empty(OwnerDecisions),
        "user_value_field": "user_email",
        "window": WINDOW,
        "stored_days": WINDOW.days,
        "last_settled": WINDOW.last,
    }
    return Inputs(counts=logons, hosts=assets, rules=rules, **(usual | others))
