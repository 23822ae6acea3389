"""The tables of the report's page, from the stored tables: which rows, in which order, in which words."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import polars as pl

from ownership.codes import ACTION, EVIDENCE, GONE, MATCH, MEASURE, OUTCOME, SUCCESSES
from ownership.coverage import STAGES, left_behind
from ownership.names import printable
from ownership.quality import names_without_user
from reports.sentences import logons

MAX_NAME = 120
PAGE_ROWS = 100
"""Rows of a table that are shown at once, and without scripts the only ones."""
MAX_ROWS = 100_000
"""Rows of one table in the page: those of more hosts would make it too large for a browser."""

Parts = tuple[tuple[str, str], ...]
Filters = Mapping[str, tuple[str, pl.Expr]]

_HOST = (("text", "host"), ("small", "asset"))
_SHARE = (("percent", "share"), ("small", "logons"))
_NO_LIST = pl.lit([], pl.List(pl.String))


@dataclass(frozen=True)
class PageTable:
    """A table of the page.

    `columns` has for each head the parts of a cell, each a style and a column of the frame. Styles: `text`,
    `small`, `people` (ids of user assets, or accounts: links), `was` (the same, struck through), `number`,
    `percent` (0 to 1). The first part sorts. `filters` has the words of what links narrow the rows to; which
    of them hold for a row stands in the column `filters`. `unseen` are columns that the script needs.
    """

    title: str
    frame: pl.DataFrame
    columns: Mapping[str, Parts]
    nothing: str = "None."
    filters: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()

    @property
    def first_rows(self) -> list[dict[str, Any]]:
        """The rows that stand in the page itself."""
        return self.frame.head(PAGE_ROWS).to_dicts()

    @property
    def packed(self) -> dict[str, Any]:
        """The rows for the script, column by column."""
        names = {name for parts in self.columns.values() for _, name in parts} | {*self.unseen}
        return {
            "rows": self.frame.height,
            "columns": [list(parts) for parts in self.columns.values()],
            "filters": dict(self.filters),
            "fields": {name: _compact(self.frame[name]) for name in sorted(names)},
        }


def as_json(tables: Mapping[str, PageTable], labels: Mapping[str, str]) -> str:
    """The tables, and what to call user assets by id, as JSON; nothing in it can end its element."""
    content = {
        "page_rows": PAGE_ROWS,
        "people": {shown(user_id): shown(label) for user_id, label in labels.items()},
        "tables": {name: table.packed for name, table in tables.items()},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(text: str) -> str:
    """A name as the page may show it: printable, and not too long."""
    return printable(text if len(text) <= MAX_NAME else text[:MAX_NAME] + "…")


def _compact(column: pl.Series) -> list[Any] | dict[str, list[Any]]:
    """A column's values; where many are alike the distinct ones, and which of them each row has."""
    values: list[Any] = column.round(4).to_list() if column.dtype.is_float() else column.to_list()
    if column.dtype == pl.String:
        values = [text and shown(text) for text in values]
    if column.dtype == pl.List:
        values = [tuple(map(shown, texts or ())) for texts in values]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if 2 * len(numbers) > len(values):
        return values
    return {"of": list(numbers), "at": [numbers[value] for value in values]}


def hosts_table(
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    owners: pl.DataFrame,
    writes: pl.LazyFrame,
) -> PageTable:
    """All hosts, with who owns each now and why.

    `owners` is what `ownership.coverage.current_owners` finds, `writes` are rows of all runs. The frame has
    `row`, and `people` with everybody who owns, owned or uses the host, or is named for it.
    """
    # What changed something, or may have, matters more than what left the host alone since.
    sent = pl.col("outcome").is_in([*SUCCESSES, "failed", "intended"])
    last_writes = (
        writes.filter(
            pl.col("intended_at") >= pl.lit(decisions["decided_at"].min(), pl.Datetime("us", "UTC"))
        )
        .sort(sent, pl.coalesce("completed_at", "intended_at"))
        .group_by("host_id")
        .agg(pl.last("outcome"))
        .collect()
    )
    ours = (pl.col("source") == "asset-owners") & (pl.col("owner_ids").list.len() > 0)
    wrote = pl.format("asset-owners wrote this owner on {}.", pl.col("since").dt.strftime("%Y-%m-%d"))
    frame = (
        _by_host(decisions)
        .head(MAX_ROWS)
        .join(
            owners.select("host_id", "owner_ids", wrote=pl.when(ours).then(wrote)), on="host_id", how="left"
        )
        .join(last_writes, on="host_id", how="left", maintain_order="left")
        .with_columns(
            **_reason("evidence", "match", "action", "outcome"),
            wrote=pl.when(pl.col("outcome").ne_missing("planned")).then("wrote"),
            existing=_ids("existing_owner"),
            resolved=_ids("resolved_owner"),
            no_owner=pl.when(pl.col("host_id").is_null())
            .then(pl.lit("no host asset"))
            .when(pl.col("owner_ids").is_null())
            .then(pl.lit("not known"))
            .when(pl.col("owner_ids").list.len() == 0)
            .then(pl.lit("none")),
            last_seen=pl.col("last_seen").cast(pl.String),
        )
    )
    frame = _with_logons(frame).with_columns(pl.col("owner_ids").fill_null(_NO_LIST)).with_row_index("row")
    people = pl.concat([people_of(frame), users_of(frame, shares, matches)]).group_by("row")
    frame = frame.join(
        people.agg(people=pl.col("person").unique()), on="row", how="left", maintain_order="left"
    )
    filters = _host_filters(decisions)
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Owner": (("people", "owner_ids"), ("small", "no_owner")),
        "Why": (("text", "why"), ("small", "what_follows"), ("small", "wrote")),
        "Leading user": (("text", "username"),),
        "Share": _SHARE,
        "Last seen": (("text", "last_seen"),),
    }
    return PageTable(
        "Hosts",
        _with_filters(frame, filters),
        columns,
        "No host is known.",
        {name: words for name, (words, _) in filters.items()},
        ("filters", "people"),
    )


def people_of(hosts: pl.DataFrame) -> pl.DataFrame:
    """Whom the rows of `hosts_table` name: row, person, role (owned, named, recorded)."""
    roles = {"owned": "owner_ids", "named": "resolved", "recorded": "existing"}
    return pl.concat(
        hosts.select("row", person=column, role=pl.lit(role)).explode("person").drop_nulls("person")
        for role, column in roles.items()
    )


def users_of(hosts: pl.DataFrame, shares: pl.DataFrame, matches: pl.DataFrame) -> pl.DataFrame:
    """Who logs on to the hosts under any of their names: row, person, role (used).

    A person is the user asset that a user name stands for, or an account where that is not one.
    """
    readable = pl.col("problem").is_null().all() & (pl.len() == 1)
    one = matches.filter("decisive").group_by("username").agg(pl.first("user_id"), readable.alias("one"))
    names = hosts.select("row", hostname=pl.coalesce("hostnames", pl.concat_list("hostname")))
    return (
        shares.join(names.explode("hostname"), on="hostname")
        .join(one.filter("one"), on="username", how="left")
        .select("row", person=pl.coalesce("user_id", _account()), role=pl.lit("used"))
        .unique()
    )


def people_table(hosts: pl.DataFrame, shares: pl.DataFrame, matches: pl.DataFrame) -> PageTable:
    """The people who own hosts, whom the logons name, or who log on; those with most machines first."""
    roles = ("owned", "named", "used", "recorded")
    rows = (
        pl.concat([people_of(hosts), users_of(hosts, shares, matches)])
        .group_by("person")
        .agg(pl.col("role").filter(role=role).len().alias(role) for role in roles)
        .sort(*roles, "person", descending=[*([True] * len(roles)), False])
        .with_columns(pl.concat_list("person"))
    )
    columns: dict[str, Parts] = {
        "Person": (("people", "person"),),
        "Owns": (("number", "owned"),),
        "Named by the logons": (("number", "named"),),
        "Logs on to": (("number", "used"),),
        "Owned before the run": (("number", "recorded"),),
    }
    return PageTable("People", rows.head(MAX_ROWS), columns, "Nobody owns a host or logs on.")


def conflicts_table(hosts: pl.DataFrame) -> PageTable:
    """The rows of `hosts_table` whose logons name another owner, the strongest evidence first."""
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Owner in the inventory": (("people", "existing"),),
        "Owner by the logons": (("people", "resolved"), ("small", "username")),
        "Share": _SHARE,
        "Last seen": (("text", "last_seen"),),
    }
    rows = hosts.filter(action="conflict").sort("share", "events", descending=True, maintain_order=True)
    return PageTable("Conflicts", rows, columns)


def unmatched_table(decisions: pl.DataFrame, shares: pl.DataFrame, matches: pl.DataFrame) -> PageTable:
    """The names that stand for no one user asset, with the hosts that stay without an owner for it."""
    waiting = (
        decisions.filter(pl.col("match").is_in(["no_user_asset", "ambiguous_user"]))
        .group_by("username")
        .agg(waiting=pl.len())
    )
    candidates = matches.filter("decisive").group_by("username").agg(candidates=pl.col("user_id").sort())
    rows = (
        names_without_user(shares, matches)
        .join(waiting, on="username", how="left", maintain_order="left")
        .join(candidates, on="username", how="left", maintain_order="left")
        .with_columns(pl.col("waiting").fill_null(0), user=pl.concat_list(_account()))
        .sort("waiting", descending=True, maintain_order=True)
    )
    columns: dict[str, Parts] = {
        "User": (("people", "user"),),
        "Hosts waiting": (("number", "waiting"),),
        "Hosts used": (("number", "hosts"),),
        "Logons": (("number", "events"),),
        "User assets": (("people", "candidates"),),
    }
    return PageTable("Unmatched users", rows, columns)


def changes_table(changes: pl.DataFrame, *, first_run: bool) -> PageTable:
    """What the run decided otherwise than the one before; rows of `ownership.history.changes_of`."""
    then = _reason("evidence_before", "match_before", "action_before")
    rows = _by_host(changes).with_columns(
        **_reason("evidence", "match", "action"),
        why_before=then["why"].fill_null("new host"),
        followed=then["what_follows"],
        named_before=_ids("resolved_owner_before", unless="resolved_owner"),
        named=_ids("resolved_owner"),
        recorded_before=_ids("existing_owner_before", unless="existing_owner"),
        recorded=_ids("existing_owner"),
    )
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Decided before": (("text", "why_before"), ("small", "followed")),
        "Decided now": (("text", "why"), ("small", "what_follows")),
        "Owner by the logons": (("was", "named_before"), ("people", "named")),
        "Owner in the inventory": (("was", "recorded_before"), ("people", "recorded")),
    }
    nothing = "This is the first run." if first_run else "None."
    return PageTable("Changes", rows.head(MAX_ROWS), columns, nothing)


def writes_table(writes: pl.DataFrame) -> PageTable:
    """What the run wrote, or meant to write."""
    before, after = (
        {
            name: pl.col(values).struct.field(name).replace("", None)
            for name in ("owner", "department", "criticality")
        }
        for values in ("old_values", "new_values")
    )
    changed = {
        name: pl.when(before[name].is_null() | (before[name] == after[name]))
        .then(after[name])
        .otherwise(pl.format("{} → {}", before[name], after[name].fill_null("cleared")))
        for name in ("department", "criticality")
    }
    rows = _by_host(writes).with_columns(
        **changed,
        owner=pl.concat_list(after["owner"]).list.drop_nulls(),
        owner_before=pl.concat_list(before["owner"]).list.drop_nulls(),
        meaning=pl.col("outcome").replace_strict(OUTCOME, return_dtype=pl.String),
        words=pl.col("outcome").str.replace_all("_", " "),
        at=pl.coalesce("completed_at", "intended_at").dt.strftime("%Y-%m-%d %H:%M"),
    )
    filters = {outcome: (outcome.replace("_", " "), pl.col("outcome") == outcome) for outcome in OUTCOME}
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Outcome": (("text", "words"), ("small", "meaning"), ("small", "message")),
        "Owner": (("was", "owner_before"), ("people", "owner")),
        "Department": (("text", "department"),),
        "Criticality": (("text", "criticality"),),
        "When (UTC)": (("text", "at"),),
    }
    return PageTable(
        "Writes",
        _with_filters(rows.head(MAX_ROWS), filters),
        columns,
        "Nothing.",
        {name: words for name, (words, _) in filters.items()},
        ("filters",),
    )


def departments_table(departments: pl.DataFrame) -> PageTable:
    """How many hosts of each department had an owner, and have one now; of `coverage.owned_by_department`."""
    rows = departments.with_columns(
        pl.col("department").fill_null("no department"),
        before=pl.col("owned") / pl.col("hosts"),
        after=pl.col("owned_after") / pl.col("hosts"),
    )
    columns: dict[str, Parts] = {
        "Department": (("text", "department"),),
        "Host assets": (("number", "hosts"),),
        "Had an owner": (("percent", "before"), ("number", "owned")),
        "Have an owner": (("percent", "after"), ("number", "owned_after")),
    }
    return PageTable("Departments", rows, columns, "There are no host assets.")


def accuracy_table(accuracy: pl.DataFrame) -> PageTable:
    """How often the owner decided on was the right one, in all and by the leader's share."""
    rows = accuracy.filter(pl.col("by").is_in(["all", "share_band"])).with_columns(
        measure=pl.col("measure").replace_strict(MEASURE, return_dtype=pl.String).str.strip_chars("."),
        value=pl.when(by="all").then(pl.lit("all hosts")).otherwise("value"),
        of=pl.format("{} of {}", "right_hosts", "hosts"),
    )
    columns: dict[str, Parts] = {
        "Compared with": (("text", "measure"),),
        "The leader's share": (("text", "value"),),
        "Were right": (("percent", "precision"), ("small", "of")),
        "At least": (("percent", "low"),),
        "At most": (("percent", "high"),),
    }
    nothing = "Tuning has not run yet: asset-owners tune."
    return PageTable("How often owners were right", rows, columns, nothing)


def link(stage: str, reason: str = "") -> str:
    """What a link calls the hosts that come to a stage, or those that end there for a reason."""
    return f"{stage}.{reason}".rstrip(".").replace(" ", "-")


def _host_filters(decisions: pl.DataFrame) -> Filters:
    """What the numbers of the page count, by their names in links."""
    filters = {
        "host-assets": ("host assets", pl.col("host_id").is_not_null()),
        "with-owner": ("with an owner now", pl.col("owner_ids").list.len() > 0),
        "without-owner": ("without an owner now", pl.col("no_owner").eq_missing("none")),
        **{link(stage): (stage, holds) for stage, holds in STAGES.items()},
    }
    for stage, reason in left_behind(decisions).select("stage", "reason").iter_rows():
        column = "match" if reason in MATCH else "evidence"
        holds = STAGES[stage] & (pl.col(column) == reason)
        filters[link(stage, reason)] = (f"{stage}: {reason.replace('_', ' ')}", holds)
    return filters


def _with_filters(frame: pl.DataFrame, filters: Filters) -> pl.DataFrame:
    """Add the column `filters`: the names of those that hold."""
    names = (pl.when(holds).then(pl.lit(name)) for name, (_, holds) in filters.items())
    return frame.with_columns(filters=pl.concat_list(names).list.drop_nulls())


def _reason(evidence: str, match: str, action: str, outcome: str | None = None) -> dict[str, pl.Expr]:
    """Sentences that say why a host has, or has not, this owner: why, what_follows."""
    meanings = [
        (match, MATCH),
        (action, {**ACTION, GONE: "There are no decisions about the host any longer."}),
    ]
    meanings += [(outcome, OUTCOME)] if outcome else []
    sentences = [
        pl.col(column).replace_strict(sentence, default=None, return_dtype=pl.String)
        for column, sentence in [(evidence, EVIDENCE), *meanings]
    ]
    return {
        "why": sentences[0],
        "what_follows": pl.concat_str(sentences[1:], separator=" ", ignore_nulls=True),
    }


def _account() -> pl.Expr:
    """A user name that is not one user asset's, marked so that it is no user asset's id."""
    return pl.format("{} (account)", "username")


def _ids(column: str, *, unless: str | None = None) -> pl.Expr:
    """The owners that stand in a column of texts; none where another column has the same."""
    text = pl.col(column)
    text = pl.when(text.ne_missing(pl.col(unless))).then(text) if unless else text
    return text.str.split(",").fill_null(_NO_LIST)


def _with_logons(frame: pl.DataFrame) -> pl.DataFrame:
    rows = frame.select("events", "total_events", "active_days").iter_rows(named=True)
    texts = [logons(row) if row["total_events"] else None for row in rows]
    return frame.with_columns(pl.Series("logons", texts, pl.String))


def _by_host(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by host as people do, those without a name last, and add the words for it: host, asset."""
    names = frame.select("hostname", "host_id").rows()
    order = sorted(
        range(len(names)), key=lambda row: [(text is None, natural(text or "")) for text in names[row]]
    )
    return frame[order].with_columns(
        host=pl.col("hostname").fill_null("no host name"), asset=pl.col("host_id").fill_null("no host asset")
    )


def natural(text: str) -> tuple[list[tuple[float, str]], str]:
    """A key that sorts texts as people do: without regard to case, and 2 before 10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text.casefold())
    # Of numbers without leading zeros the longer one is larger, however many digits there are.
    digits = [part.lstrip("0") if part[0] in "0123456789" else None for part in parts]
    keys = [
        (inf, part) if number is None else (len(number), number)
        for part, number in zip(parts, digits, strict=True)
    ]
    return keys, text
