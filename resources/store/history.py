"""owner_decisions_history: which decisions a run changed, and for how long that and owner_writes are kept.

What counts as a change is decided in `ownership.history`.
"""

from datetime import datetime

import polars as pl

from ownership.history import changed_decisions, latest, with_new_conflicts
from ownership.tuning.accuracy import writes_that_hold
from resources.store.tables import Tables

HISTORY = "owner_decisions_history"
WRITES = "owner_writes"


def store_decisions(
    tables: Tables, decisions: pl.DataFrame, *, decided_at: datetime, run_id: str, publish: bool
) -> pl.DataFrame:
    """Store what a run decided and, where it is published, what differs from what was published before.

    Returns:
        The decisions, with the conflicts marked that those published before did not have.
    """
    with tables.changing(HISTORY):
        before = latest(tables.all_runs(HISTORY, but=run_id))
        decisions = with_new_conflicts(decisions, before)
        tables.write("owner_decisions", decisions, run_id=run_id, publish=publish)
        if publish:
            changed = changed_decisions(before, decisions, decided_at=decided_at, run_id=run_id)
            tables.append(HISTORY, changed, run_id=run_id)
    return decisions


def delete_outdated_changes(tables: Tables, *, before: datetime) -> int:
    """Delete rows of before an instant, but for the last of each host: it held until the next one.

    Returns:
        How many files were deleted.
    """
    with tables.changing(HISTORY):
        outdated = tables.files_before(HISTORY, before)
        if outdated:
            held = latest(tables.carried_over(HISTORY, outdated))
            tables.carry_over(HISTORY, held.with_columns(carried_over=pl.lit(value=True)), outdated)
    return len(outdated)


def delete_outdated_writes(tables: Tables, *, before: datetime) -> int:
    """Delete writes of before an instant, but for those that gave an owner whom the inventory still shows.

    Without its row such an owner would count as set by hand (rules 9.1).

    Returns:
        How many files were deleted.
    """
    with tables.changing(WRITES):
        outdated = tables.files_before(WRITES, before)
        if outdated:
            hosts = tables.read("inventory_hosts").collect()
            held = writes_that_hold(hosts, tables.carried_over(WRITES, outdated))
            tables.carry_over(WRITES, held.collect(), outdated)
    return len(outdated)
