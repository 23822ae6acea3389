"""What a run may do, as a table: from its steps, its days and its options."""

import re
from datetime import date
from typing import Any

import pytest

from assets_defs.run_request import INPUTS, SINK, mode_of
from resources.store.tables import SNAPSHOTS

ALL = {*INPUTS, SINK}
USUAL: dict[str, Any] = {
    "dry_run": False,
    "is_always_dry": False,
    "force": False,
    "days_named": 1,
    "is_of_backfill": False,
    "ended": None,
    "late_days": 2,
    "whole_run": "asset-owners run",
}
OLD = {"ended": date(2026, 1, 1)}


@pytest.mark.parametrize(
    ("steps", "changed", "kind", "says"),
    [
        (ALL, {}, "run", None),
        (ALL, {"dry_run": True}, "dry_run", "^Nothing is sent to the inventory$"),
        (ALL, {"dry_run": True, "is_always_dry": True}, "dry_run", r"writes\.dry_run is on$"),
        (ALL, {"dry_run": True, "force": True}, "dry_run", "^Nothing is sent to the inventory"),
        (ALL, {"days_named": 2}, "backfill", "^Backfill of 2 days"),
        (ALL, {"days_named": 2, "force": True}, "run", None),
        (ALL, {"is_of_backfill": True}, "backfill", "with a run for each day"),
        (ALL, OLD, "dry_run", "ended on 2026-01-01, more than 2 days ago"),
        (ALL, OLD | {"force": True}, "run", None),
        (ALL - {"logons"}, {}, "dry_run", "does not execute logons, .*: asset-owners run$"),
        (ALL - {"blocking_check"}, {"force": True}, "dry_run", "does not execute blocking_check, "),
        (ALL - {SINK}, {}, "backfill", "does not execute owner_writes, "),
        ({SINK}, {}, "dry_run", "does not execute logons, inventory_hosts, "),
        ({"inventory_hosts"}, {}, "backfill", "does not execute logons, inventory_users, "),
        ({"logons"}, {}, "backfill", None),
        ({"logons"}, {"dry_run": True}, "backfill", "^Nothing is sent to the inventory"),
        ({"logons"}, {"days_named": 30}, "backfill", None),
        ({"blocking_check"}, {}, "backfill", None),
    ],
)
def test_a_run_writes_that_executes_all_steps_for_one_day_of_late(steps, changed, kind, says):
    mode = mode_of(steps, **USUAL | changed)
    assert (mode.kind, mode.plans) == (kind, SINK in steps)
    if says is None:
        assert mode.why_no_writes is None
    else:
        assert re.search(says, mode.why_no_writes or "")
    decides = steps & {*SNAPSHOTS, SINK}
    assert set(mode.missing_steps) == (ALL - steps if decides else set())
    assert bool(mode.plans or mode.missing_steps) == bool(decides)
