"""The guarded write of one host: read again, write, journal.

Whoever writes to the inventory does it through here. What is to be written is planned in `ownership.plan`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from threading import Event
from typing import Any

import polars as pl

from resources.errors import NotFoundError, ServiceError, TransientError
from resources.inventory import InventoryClient
from resources.journal import Journal, Result, Values
from resources.records import host_record
from resources.settings import Instance
from resources.tables import Tables

_FAILURES = frozenset({"failed", "intended", "not_written"})


class Writer:
    """Writes host assets of one instance, each guarded by a look at what it holds.

    Args:
        inventory: the client to read and write with.
        instance: its field names and limits.
        list_hosts: lists inventory_hosts anew. Used where the service cannot read one asset (readings §2.5).
    """

    def __init__(
        self, inventory: InventoryClient, instance: Instance, list_hosts: Callable[[], pl.DataFrame]
    ) -> None:
        self._inventory = inventory
        self._instance = instance
        self._readable = instance.platform.contract.read is not None
        self._listed = (
            {} if self._readable else {row["host_id"]: row for row in list_hosts().iter_rows(named=True)}
        )

    def write(self, host_id: str, new_values: Values) -> Result:
        """Write one host unless it has an owner by now, all fields in one request (§1 rules 5, 7 and 10).

        A write whose answer is lost is never sent again: the host is read back to see what it holds. Where
        that cannot be told either, the outcome stays `intended` and the next run settles it.
        """
        held: Values | None = None
        try:
            held = self._held(host_id)
            if held["owner"] is not None:
                return Result(host_id, "owned_meanwhile", f"owned by {held['owner']} meanwhile", held)
            self._inventory.update(host_id, self._form(new_values))
        except TransientError as error:
            if held is None:  # nothing was sent
                return Result(host_id, "failed", str(error))
            return self._read_back(host_id, new_values, held, str(error))
        except ServiceError as error:
            return Result(host_id, "failed", str(error), held)
        return Result(host_id, "written", None, held)

    def _read_back(self, host_id: str, new_values: Values, held: Values, lost: str) -> Result:
        """Tell from what the host holds now whether a write with a lost answer was done."""
        if not self._readable:
            return Result(host_id, "intended", lost, held)
        try:
            owner = self._held(host_id)["owner"]
        except ServiceError:
            return Result(host_id, "intended", lost, held)
        if owner == new_values["owner"]:
            return Result(host_id, "written", f"confirmed by reading back; the answer was lost: {lost}", held)
        if owner is not None:
            return Result(host_id, "owned_meanwhile", f"owned by {owner} meanwhile", {**held, "owner": owner})
        return Result(host_id, "failed", lost, held)

    def _held(self, host_id: str) -> Values:
        if self._readable:
            row = host_record(host_id, self._inventory.read(host_id), self._instance)
        elif host_id in self._listed:
            row = self._listed[host_id]
        else:
            raise NotFoundError(f"Host {host_id} is no longer in the inventory")
        owner = ",".join(row["owner_ids"]) or None
        return {"owner": owner, "department": row["department"], "criticality": row["criticality"]}

    def _form(self, values: Values) -> dict[str, str]:
        """The fields to send, by the inventory's names; what is None is not sent."""
        enriched = self._instance.platform.contract.enrich_fields
        named = {
            self._instance.platform_user_field: values["owner"],
            enriched.user_department: values["department"],
            enriched.criticality: values["criticality"],
        }
        return {field: value for field, value in named.items() if field is not None and value is not None}


def write_owners(
    plan: pl.DataFrame,
    writer: Writer,
    journal: Journal,
    *,
    concurrency: int,
    max_failed_writes: int,
    on_progress: Callable[[int, int], None],
) -> bool:
    """Write the planned owners, several hosts at a time; each row and each outcome goes into the journal.

    Args:
        plan: rows of owner_writes of one run, with outcome `intended`.
        writer: writes one host.
        journal: stores the whole plan before the first request goes out.
        concurrency: hosts at a time.
        max_failed_writes: so many failures one after another, in order of completion, end the writing;
            what was not tried by then is `not_written` and left for the next run.
        on_progress: told how many of how many hosts are done.

    Returns:
        Whether the writing came to its end.
    """
    journal.intend(plan)
    stop = Event()
    failures_in_a_row = 0

    def attempt(row: dict[str, Any]) -> Result:
        if stop.is_set():
            reason = f"the run ended after {max_failed_writes} failures in a row"
            return Result(row["host_id"], "not_written", reason)
        return writer.write(row["host_id"], row["new_values"])

    with ThreadPoolExecutor(concurrency) as pool:
        try:
            tasks = [pool.submit(attempt, row) for row in plan.iter_rows(named=True)]
            for done, task in enumerate(as_completed(tasks), start=1):
                result = task.result()
                journal.complete(result, run_id=plan["run_id"][0], completed_at=datetime.now(UTC))
                failures_in_a_row = failures_in_a_row + 1 if result.outcome in _FAILURES else 0
                if failures_in_a_row >= max_failed_writes:
                    stop.set()
                on_progress(done, len(tasks))
        except BaseException:
            stop.set()  # whatever interrupts the run must not let the pool write on
            raise
    return not stop.is_set()


def settle_leftovers(journal: Journal, tables: Tables, hosts: pl.DataFrame) -> int:
    """Settle the writes of runs that were cut off, from what the inventory holds now (readings §7).

    Args:
        journal: its rows move into owner_writes.
        tables: where owner_writes lies.
        hosts: inventory_hosts, listed after those runs had ended.

    Returns:
        How many writes were still unknown.
    """
    owners = {row["host_id"]: row["owner_ids"] for row in hosts.iter_rows(named=True)}
    settled = 0
    for run_id in journal.run_ids():
        for row in journal.rows(run_id).filter(outcome="intended").iter_rows(named=True):
            done = row["new_values"]["owner"] in owners.get(row["host_id"], [])
            message = f"the run was cut off; the inventory {'holds' if done else 'does not hold'} the value"
            result = Result(row["host_id"], "written" if done else "not_written", message)
            journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
            settled += 1
        tables.append_writes(journal.rows(run_id), run_id=run_id)
        journal.forget(run_id)
    return settled
