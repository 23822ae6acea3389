"""What `run`, `apply` and `undo` print of a plan that was not applied."""

from typing import Any

from assets_defs.report import how_sure
from ownership.plan import exceeded_limit
from reports.plan import plan_in_words, planned_hosts
from resources.settings import Instance, command_line
from resources.store.tables import Tables, short_run_id

Plan = list[dict[str, Any]]
"""The hosts that a run planned to write and did not, as `--json` shows them."""


def plan_of(
    instance: Instance, tables: Tables, run_id: str, *, succeeded: bool, people_of: str | None = None
) -> Plan | None:
    """Return the plan of a run; None where it failed for another reason than the limits of a run.

    The users of the run `people_of`, where it is given, are the owners, and otherwise its own.
    """
    users = tables.view(people_of or run_id).read("inventory_users").collect()
    hosts = planned_hosts(tables.run_writes(run_id), users)
    return hosts if succeeded or (hosts and too_large(instance, tables, run_id, hosts)) else None


def describe_plan(
    instance: Instance, tables: Tables, run_id: str, hosts: Plan, *, command: str, about: str
) -> str:
    """Put a plan into words, with the command that applies it: `apply` or `undo` of the run `about`."""
    allow = ["--allow-writes", str(len(hosts))] if too_large(instance, tables, run_id, hosts) else []
    own = hosts and command == "apply" and tables.holds("owner_decisions", run_id)
    return plan_in_words(
        hosts,
        sure=how_sure(instance, tables.view(run_id)) if own else [],
        is_undo=command == "undo",
        apply=command_line(instance, command, short_run_id(about), *allow),
        see_all=command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history"),
    )


def too_large(instance: Instance, tables: Tables, run_id: str, hosts: Plan) -> bool:
    """Return whether a plan is over the limits of a run."""
    # What apply and undo see of the inventory is not stored, only its size, which the limits need.
    listed = int(tables.appended("runs", run_id)["hosts"].sum())
    return exceeded_limit(len(hosts), listed, instance.writes, what="hosts") is not None
