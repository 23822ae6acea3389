"""The hosts of a run as people look for them: who owns each now, how it stands, what would change that."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from ownership.codes import SUCCESSES
from ownership.decisions import HAS_OWNER
from ownership.history import ACKNOWLEDGED, belongs_to_decision
from ownership.matching import FieldNames
from ownership.rules import NAMING, Rules, first_that_holds
from reports.exports import printable_texts
from reports.people import display_names
from reports.remedies import Remedies
from reports.sentences import names_of, ownership_sentence

STATUS: Mapping[str, str] = {
    "planned": "A run would write this owner; nothing is written yet.",
    "conflict": "The inventory has one owner, who stays; the logons speak for another.",
    "written": "asset-owners wrote the owner, and the host still has it.",
    "set by hand": "The inventory has an owner whom asset-owners did not write.",
    "no owner": "The inventory has no owner, or the host asset cannot be read.",
    "not in the inventory": "The logons have this host name, and the inventory does not.",
}
"""How a host stands, in the words of the page and of the sheet, and what that means."""
NEED_A_PERSON = ("planned", "conflict", "no owner")

LEFT_FOR_LATER = "left for later"
"""Why a host has no owner yet that a run of some hosts did not choose."""

_REASONS: Mapping[str, str] = {
    "unreadable_asset": "cannot be read",
    "no_hostname": "no host name",
    "excluded_host": "excluded",
    "hostname_collision": "ambiguous name",
    "no_logons": "no logons",
    "too_few_events": "too few logons",
    "no_majority": "no majority",
    "not_primary_device": "not primary device",
    "idle_user": "user idle",
    "answered_no": "answered no",
    "low_confidence": "low confidence",
    "single_user": "only one user",
    "majority": "clear majority",
    "no_user_asset": "no user asset",
    "ambiguous_user": "several user assets",
    "excluded_user": "user excluded",
    "failed": "write failed",
    "intended": "write pending",
    "not_written": "not written",
    "left_out": LEFT_FOR_LATER,
    "undone": "undone",
}
"""Why, in three words at most: by code of evidence or match, or by the outcome of the last write."""
_STOPPED = ("failed", "intended", "not_written", "undone", "left_out")


def hosts_by_now(
    decisions: pl.DataFrame, owners: pl.DataFrame, writes: pl.LazyFrame, acknowledged: pl.DataFrame
) -> pl.DataFrame:
    """Return the decisions with each host's owners now and how it stands.

    Adds owner_ids, source, since, wrote_in (the run), planned_owner, department_now (as a plan would leave
    it), outcome (of the last write since the decision), of a conflict acknowledged_by, acknowledged_at and
    note, status (of `STATUS`) and why (its reason, in a few words). `owners` are rows of `current_owners`,
    `writes` of `owner_writes`, `acknowledged` of `acknowledged_conflicts`. Hosts whose primary user is clear
    come first, so that kiosks and servers do not.
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
    now = owners.select(
        "host_id", "owner_ids", "source", "since", wrote_in="run_id", department_now="department"
    )
    known = acknowledged.select(*ACKNOWLEDGED, "acknowledged_at", "note", acknowledged_by="by")
    planned, new = pl.col("outcome").eq_missing("planned"), pl.col("new_values").struct
    return (
        in_order(decisions)
        .sort(pl.col("evidence").is_in(NAMING), descending=True, maintain_order=True)
        .join(now, on="host_id", how="left", maintain_order="left")
        .join(outcomes, on="host_id", how="left", maintain_order="left")
        .join(known, on=ACKNOWLEDGED, how="left", maintain_order="left")
        .with_columns(
            planned_owner=pl.when(planned).then(new.field("owner")),
            department_now=pl.coalesce(pl.when(planned).then(new.field("department")), "department_now"),
        )
        .with_columns(status=_status(), why=_why())
        .drop("new_values")
    )


def _status() -> pl.Expr:
    cases = (
        ("not in the inventory", pl.col("host_id").is_null()),
        ("planned", pl.col("planned_owner").is_not_null()),
        ("conflict", pl.col("action") == "conflict"),
        ("written", HAS_OWNER & (pl.col("source") == "asset-owners")),
        ("set by hand", HAS_OWNER),
    )
    return first_that_holds(cases).fill_null("no owner")


def _why() -> pl.Expr:
    is_stopped = (pl.col("action") == "write") & ~HAS_OWNER
    # A run that was asked for some hosts (`--host`, `--limit`) has no row for the others.
    outcome = pl.col("outcome").fill_null("left_out")
    stopped = pl.when(is_stopped & outcome.is_in(_STOPPED)).then(outcome)
    excluded = pl.when((pl.col("match") == "no_user_asset") & pl.col("excluded_by").is_not_null())
    unmatched = excluded.then(pl.lit("excluded_user")).when(pl.col("match") != "matched").then("match")
    codes = pl.coalesce(stopped, unmatched, "evidence").replace_strict(_REASONS, return_dtype=pl.String)
    return pl.when(pl.col("acknowledged_at").is_not_null()).then(pl.lit("acknowledged")).otherwise(codes)


def in_words(hosts: pl.DataFrame, remedies: Remedies) -> pl.DataFrame:
    """Return for each row of `hosts_by_now` whose the host is, in one sentence, and what would change that.

    Columns: sentence, remedy (null: nothing would).
    """

    def words(host: Mapping[str, Any]) -> tuple[str, str | None]:
        now = None if host["host_id"] is None else {**host, "run_id": host["wrote_in"] or ""}
        sentence = ownership_sentence(host, now, remedies.name_of, is_pending=host["outcome"] == "intended")
        return sentence, next(remedies.of_host(host, host["owner_ids"], host["outcome"]), None)

    rows = [words(host) for host in remedies.with_needs(hosts).iter_rows(named=True)]
    return pl.DataFrame(rows, {"sentence": pl.String, "remedy": pl.String}, orient="row")


def hosts_sheet(hosts: pl.DataFrame, users: pl.DataFrame, rules: Rules, fields: FieldNames) -> pl.DataFrame:
    """Return the rows of `hosts_by_now` as a table for a spreadsheet, in the words of the page."""
    names, owners, planned = display_names(users), pl.col("owner_ids"), pl.concat_list("planned_owner")
    addresses = names_of(users.iter_rows(named=True), ["user_email"])

    def texts(ids: pl.Expr, known: Mapping[str, str], default: pl.Expr | None = None) -> pl.Expr:
        each = pl.element().replace_strict(known, default=default, return_dtype=pl.String)
        return ids.list.eval(each).list.drop_nulls().list.join(", ").replace("", None)

    columns = {
        "Host": pl.col("hostname"),
        "Status": pl.col("status"),
        "Reason": pl.col("why"),
        "Owner": texts(owners, names, pl.element()),
        "Owner's address": texts(owners, addresses),
        "Planned owner": texts(planned, names, pl.element()),
        "Planned owner's address": texts(planned, addresses),
        "Share": pl.col("share").round(4),
        "Confidence": pl.col("confidence").round(4),
        "Last logon": pl.col("last_seen"),
        "Department": pl.col("department_now"),
        "In words": pl.col("sentence"),
        "What would change it": pl.col("remedy"),
        "Conflict since": pl.col("conflict_since").dt.date(),
        "Acknowledged by": pl.col("acknowledged_by"),
        "Acknowledged on": pl.col("acknowledged_at").dt.date(),
        "Note": pl.col("note"),
        "Host id": pl.col("host_id"),
        "Owner's id": texts(owners, {}, pl.element()),
        "Planned owner's id": pl.col("planned_owner"),
    }
    return printable_texts(
        hosts.hstack(in_words(hosts, Remedies(users, names, rules, fields))).select(**columns)
    )


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by hostname and host_id as people do, those without a name last."""
    names = frame.select("hostname", "host_id").rows()
    order = sorted(
        range(len(names)), key=lambda row: [(text is None, natural(text or "")) for text in names[row]]
    )
    return frame[order]


@lru_cache(maxsize=100_000)  # of one page, where names are sorted several times
def natural(text: str) -> tuple[str, str]:
    """A key that sorts texts as people do: without regard to case, and 2 before 10."""
    return re.sub("[0-9]+", lambda digits: digits[0].lstrip("0").zfill(20), text.casefold()), text
