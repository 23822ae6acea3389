"""What tuning rests on, for tests."""

from typing import Any

import polars as pl

from ownership.declaration import empty
from ownership.rules import Rules
from ownership.tables import AuditSample, OwnerDecisions, OwnerWrites
from ownership.tuning.confidence import with_answers
from ownership.tuning.inputs import Inputs
from sandbox.stored_run import inventory_reader
from tests.ownership.builders import PEOPLE, WINDOW


def inputs(
    logons: pl.LazyFrame, assets: pl.DataFrame, rules: Rules, *, users: pl.DataFrame = PEOPLE, **others: Any
) -> Inputs:
    """These logons and assets, in a window that is stored whole; no writes, no decisions."""
    stored: dict[str, Any] = {
        "writes": empty(OwnerWrites),
        "decisions": empty(OwnerDecisions),
        "user_value_field": "user_email",
        "window": WINDOW,
        "stored_days": WINDOW.days,
        "last_settled": WINDOW.last,
        "audit": with_answers(empty(OwnerDecisions), empty(AuditSample)),
    }
    stored |= others
    listed = stored.pop("listed", (assets, users))
    window = stored["window"]
    return Inputs(
        counts=logons.filter(pl.col("day").is_between(window.first, window.last)),
        read_inventory=inventory_reader(assets, users),
        read_listed=inventory_reader(*listed),
        more_counts=logons,
        rules=rules,
        **stored,
    )
