"""The hosts of a run as people look for them: who owns each now, why, and what would change that."""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from ownership.codes import SUCCESSES
from ownership.history import belongs_to_decision
from ownership.matching import FieldNames
from ownership.names import printable
from ownership.rules import NAMING, Rules
from reports.remedies import accounts_of, problems_of, remedies, with_needs
from reports.sentences import NAMES, names_of, reason


def hosts_by_now(decisions: pl.DataFrame, owners: pl.DataFrame, writes: pl.LazyFrame) -> pl.DataFrame:
    """Return the decisions with owner_ids, source, since and department_now, as a plan would leave them.

    `owners` are rows of `current_owners`; `outcome` is the last in `writes` since the decision.
    Hosts for which the logons name somebody come first, so that kiosks and servers do not.
    """
    # What changed something, or may have, matters more than what left the host unchanged since.
    sent = pl.col("outcome").is_in([*SUCCESSES, "failed", "intended"])
    run_id, decided_at = decisions.select(pl.first("run_id"), pl.min("decided_at")).row(0)
    outcomes = (
        writes.filter(belongs_to_decision(run_id, decided_at))
        .sort(sent, pl.coalesce("completed_at", "intended_at"))
        .group_by("host_id")
        .agg(pl.last("outcome", "new_values"))
        .collect()
    )
    planned, new = pl.col("outcome").eq_missing("planned"), pl.col("new_values").struct
    return (
        in_order(decisions)
        .sort(pl.col("evidence").is_in(NAMING), descending=True, maintain_order=True)
        .join(
            owners.select("host_id", "owner_ids", "source", "since", department_now="department"),
            on="host_id",
            how="left",
            maintain_order="left",
        )
        .join(outcomes, on="host_id", how="left", maintain_order="left")
        .with_columns(
            owner_ids=pl.when(planned).then(pl.concat_list(new.field("owner"))).otherwise("owner_ids"),
            department_now=pl.coalesce(pl.when(planned).then(new.field("department")), "department_now"),
        )
        .drop("new_values")
    )


def hosts_sheet(hosts: pl.DataFrame, users: pl.DataFrame, rules: Rules, fields: FieldNames) -> pl.DataFrame:
    """The rows of `hosts_by_now` as a table for people; what would change a host is said by these rules."""
    email, *others = NAMES
    emails, accounts, names = (names_of(users.to_dicts(), asked) for asked in ([email], others, NAMES))
    problems, accounts_by_name = problems_of(users), accounts_of(users, fields)

    def row(host: Mapping[str, Any]) -> dict[str, Any]:
        owners, named, outcome = host["owner_ids"], host["resolved_owner"] or "", host["outcome"]
        changes = remedies(
            host,
            owners,
            problems=problems,
            accounts=accounts_by_name,
            outcome=outcome,
            rules=rules,
            fields=fields,
        )
        why = reason(host)
        return {
            "Host": printable(host["hostname"] or ""),
            "Owner": ", ".join(printable(accounts.get(owner, owner)) for owner in owners or ()),
            "E-mail": ", ".join(printable(emails[owner]) for owner in owners or () if owner in emails),
            "Department": printable(host["department_now"] or ""),
            "Owner by the logons": printable(names.get(named, named)),
            "Why": f"{why[:1].upper()}{why[1:]}.",
            "What would change that": next(changes, ""),
            "Conflict since": host["conflict_since"],
            "Last logon": host["last_seen"],
            "Asset": printable(host["host_id"] or ""),
        }

    texts = ("Host", "Owner", "E-mail", "Department", "Owner by the logons", "Why", "What would change that")
    schema = dict.fromkeys(texts, pl.String) | {"Conflict since": pl.Date, "Last logon": pl.Date}
    days = with_needs(hosts, rules).with_columns(pl.col("conflict_since").dt.date())
    rows = [row(host) for host in days.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=schema | {"Asset": pl.String})


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by hostname and host_id as people do, those without a name last."""
    names = frame.select("hostname", "host_id").rows()
    order = sorted(
        range(len(names)), key=lambda row: [(text is None, natural(text or "")) for text in names[row]]
    )
    return frame[order]


def natural(text: str) -> tuple[str, str]:
    """A key that sorts texts as people do: without regard to case, and 2 before 10."""
    return re.sub("[0-9]+", lambda digits: digits[0].lstrip("0").zfill(20), text.casefold()), text
