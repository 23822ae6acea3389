"""What `run`, `apply` and `undo` print of a plan that was not carried out."""

from typing import Any

from assets_defs.tuning import stored_inputs
from ownership.plan import limit_exceeded
from ownership.tuning.report import present_line
from reports.plan import plan_in_words, planned_hosts
from reports.tuning import backtest_sentence, reason
from resources.settings import Instance, command_line
from resources.store.tables import Tables, short_run_id


def hosts_of_plan(tables: Tables, run_id: str, *, people_of: str | None = None) -> list[dict[str, Any]]:
    """The hosts that a run planned to write and did not, as `--json` shows them.

    Args:
        tables: of the instance.
        run_id: the run.
        people_of: the run whose users are the owners; None: its own.
    """
    users = tables.view(people_of or run_id).read("inventory_users").collect()
    return planned_hosts(tables.run_writes(run_id), users)


def told_plan(
    instance: Instance, tables: Tables, run_id: str, hosts: list[dict[str, Any]], *, command: str, about: str
) -> str:
    """Tell a plan in words, with the command that carries it out.

    Args:
        instance: whose plan it is.
        tables: of the instance.
        run_id: the run that made the plan.
        hosts: what `hosts_of_plan` gives.
        command: `apply` or `undo`.
        about: the run that the command names.
    """
    allow = ["--allow-writes", str(len(hosts))] if too_large(instance, tables, run_id, hosts) else []
    see_all = command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
    own = hosts and command == "apply" and tables.holds("owner_decisions", run_id)
    sure = how_sure(instance, tables.view(run_id)) if own else []
    return plan_in_words(
        hosts,
        sure=sure,
        puts_back=command == "undo",
        carry_out=command_line(instance, command, short_run_id(about), *allow),
        see_all=f"{see_all} (or --json)",
    )


def how_sure(instance: Instance, tables: Tables, *, done: bool = False) -> list[str]:
    """Tell how many of the owners that a run decided on would be wrong; nothing where it decided on none.

    Args:
        instance: whose run it is.
        tables: as the run saw them.
        done: whether it was allowed to write.
    """
    if tables.read("owner_decisions").head(1).collect().is_empty():
        return []
    line = present_line(stored_inputs(instance, tables))
    return [backtest_sentence(line, done=done), reason(line)] if line["to_write"] else []


def too_large(instance: Instance, tables: Tables, run_id: str, hosts: list[dict[str, Any]]) -> bool:
    """Tell whether a plan is over the limits of a run (rules 7.10).

    Args:
        instance: whose plan it is.
        tables: of the instance.
        run_id: the run that made the plan.
        hosts: what `hosts_of_plan` gives.
    """
    # What apply and undo see of the inventory is not stored, but for its size, by which they keep the limits.
    listed = int(tables.appended("runs", run_id)["hosts"].sum())
    reason = limit_exceeded(
        len(hosts),
        listed,
        what="hosts",
        max_writes=instance.writes.max_writes,
        max_write_percent=instance.writes.max_write_percent,
    )
    return reason is not None
