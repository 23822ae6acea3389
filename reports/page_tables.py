"""The tables of the report's page, from the stored tables: which rows, in which order, in which words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME
from ownership.coverage import STAGES, drop_outs
from ownership.history import open_conflicts
from ownership.matching import candidates
from ownership.names import printable
from ownership.rules import first_that_holds
from reports.exports import FORMULA
from reports.hosts import in_order
from reports.sentences import COUNTS, logons

MAX_TEXT = 250
"""Characters of a text in the page: the longest of our own sentences have 210."""
MAX_ROWS = 100_000
"""Rows of one table in the page: those of more hosts would make it too large for a browser."""

Parts = tuple[tuple[str, str], ...]
Filters = Mapping[str, tuple[str, pl.Expr]]

_HOST = (("host", "host"), ("small", "asset"))
_SHARE = (("percent", "share"), ("small", "logons"))
_NO_LIST = pl.lit([], pl.List(pl.String))


@dataclass(frozen=True)
class PageTable:
    """A table of the page.

    `columns` has for each head the parts of a cell, each a style (`SHOWN` in page.js) and a column of the
    frame; the first part sorts. `filters` has what links narrow the rows to: words, and which rows. `unseen`
    are columns that the script needs.
    """

    title: str
    frame: pl.DataFrame
    columns: Mapping[str, Parts]
    filters: Filters = field(default_factory=dict)
    unseen: tuple[str, ...] = ()

    @property
    def packed(self) -> dict[str, Any]:
        """The rows for the script, column by column."""
        names = {name for parts in self.columns.values() for _, name in parts} | {*self.unseen}
        holding = [pl.when(holds).then(pl.lit(name)) for name, (_, holds) in self.filters.items()]
        narrowed = [pl.concat_list(holding).list.drop_nulls().alias("filters")] if holding else []
        fields = self.frame.select(*sorted(names), *narrowed)
        return {
            "rows": self.frame.height,
            "columns": [list(parts) for parts in self.columns.values()],
            "filters": {name: words for name, (words, _) in self.filters.items()},
            "fields": {column.name: _compact(column) for column in fields},
        }


def as_json(tables: Mapping[str, PageTable], labels: Mapping[str, str]) -> str:
    """The tables, and what to call user assets by id, as JSON; nothing in it can end its element."""
    content = {
        "formula": FORMULA,
        "people": {shown(user_id): shown(label) for user_id, label in labels.items()},
        "tables": {name: table.packed for name, table in tables.items()},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(text: str) -> str:
    """A text as the page may show it: printable, and not too long."""
    return printable(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…")


def _compact(column: pl.Series) -> list[Any] | dict[str, list[Any]]:
    """A column's values; where many are alike the distinct ones, and which of them each row has."""
    values: list[Any] = column.round(4).to_list() if column.dtype.is_float() else column.to_list()
    if column.dtype in (pl.String, pl.List):
        texts = column.explode() if column.dtype == pl.List else column
        as_shown = {text: shown(text) for text in texts.unique().drop_nulls()}
        if column.dtype == pl.String:
            values = [*map(as_shown.get, values)]
        else:
            values = [tuple(map(as_shown.get, several or ())) for several in values]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if 2 * len(numbers) > len(values):
        return values
    return {"of": list(numbers), "at": [numbers[value] for value in values]}


def with_words(hosts: pl.DataFrame) -> pl.DataFrame:
    """The rows of `reports.hosts.hosts_by_now`, numbered, with words for what the page shows of them."""
    ours = (pl.col("source") == "asset-owners") & (pl.col("owner_ids").list.len() > 0)
    ours &= pl.col("outcome").ne_missing("planned")
    without_owner = (
        ("no host asset", pl.col("host_id").is_null()),
        ("not known", pl.col("owner_ids").is_null()),
        ("none", pl.col("owner_ids").list.len() == 0),
    )
    names = _with_names(hosts.head(MAX_ROWS)).with_columns(
        why=_sentence("evidence", EVIDENCE),
        what_follows=pl.concat_str(
            _sentence("match", MATCH),
            _sentence("action", ACTION),
            _sentence("outcome", OUTCOME),
            separator=" ",
            ignore_nulls=True,
        ),
        because=pl.coalesce("problem", "excluded_by"),
        conflict=_on_day("Conflict since {}.", "conflict_since"),
        wrote=pl.when(ours).then(_on_day("asset-owners wrote this owner on {}.", "since")),
        existing=pl.col("existing_owner").str.split(",").fill_null(_NO_LIST),
        resolved=pl.concat_list("resolved_owner").list.drop_nulls(),
        no_owner=first_that_holds(without_owner),
        last_seen=pl.col("last_seen").cast(pl.String),
    )
    rows = names.select(COUNTS).iter_rows(named=True)
    texts = pl.Series("logons", [logons(row) if row["total_events"] else None for row in rows], pl.String)
    return names.with_columns(texts, pl.col("owner_ids").fill_null(_NO_LIST)).with_row_index("row")


def hosts_table(hosts: pl.DataFrame, people: pl.DataFrame) -> PageTable:
    """All hosts, with who owns each now and why; rows of `with_words` and of `people_on` them."""
    besides = ("because", "what_follows", "conflict", "wrote")
    everybody = people.group_by("row").agg(people=pl.col("person").unique())
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Owner": (("people", "owner_ids"), ("small", "no_owner")),
        "Why": (("text", "why"), *(("small", name) for name in besides)),
        "Primary user": (("text", "username"), ("people", "resolved")),
        "Share": _SHARE,
        "Last seen": (("text", "last_seen"),),
    }
    rows = hosts.join(everybody, on="row", how="left", maintain_order="left")
    return PageTable("Hosts", rows, columns, _host_filters(hosts), ("people",))


def people_on(hosts: pl.DataFrame, shares: pl.DataFrame, matches: pl.DataFrame) -> pl.DataFrame:
    """Each person with a role (owned, named, used) on the rows of `with_words`: row, person, role.

    A person is the user asset that a user name stands for, or an account where that is not one.
    """
    names = hosts.select("row", hostname=pl.coalesce("hostnames", pl.concat_list("hostname")))
    used = (
        shares.join(names.explode("hostname"), on="hostname")
        .join(candidates(matches.lazy()).collect(), on="username", how="left")
        .select("row", person=pl.coalesce("resolved_owner", _account()), role=pl.lit("used"))
        .unique()
    )
    known = (
        hosts.select("row", person=column, role=pl.lit(role)).explode("person").drop_nulls("person")
        for role, column in (("owned", "owner_ids"), ("named", "resolved"))
    )
    return pl.concat([*known, used])


def people_table(people: pl.DataFrame) -> PageTable:
    """The rows of `people_on`, a row for each person; those with most machines first."""
    roles = ("owned", "named", "used")
    rows = (
        people.group_by("person")
        .agg(pl.col("role").filter(role=role).len().alias(role) for role in roles)
        .sort(*roles, "person", descending=[True, True, True, False])
        .with_columns(pl.concat_list("person"))
    )
    columns: dict[str, Parts] = {
        "Person": (("people", "person"),),
        "Owns": (("number", "owned"),),
        "Named by the logons": (("number", "named"),),
        "Logs on to": (("number", "used"),),
    }
    return PageTable("People", rows.head(MAX_ROWS), columns)


def conflicts_table(hosts: pl.DataFrame, acknowledged: pl.DataFrame) -> PageTable:
    """The rows of `with_words` with a conflict that nobody acknowledged, the strongest evidence first."""
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Owner in the inventory": (("people", "existing"),),
        "Owner by the logons": (("people", "resolved"), ("small", "username")),
        "Share": _SHARE,
        "Since": (("text", "since"),),
        "Last seen": (("text", "last_seen"),),
    }
    rows = open_conflicts(hosts, acknowledged).with_columns(since=_on_day("{}", "conflict_since"))
    return PageTable("Conflicts", rows.sort("share", "events", descending=True, maintain_order=True), columns)


def unmatched_table(unmatched: pl.DataFrame, closest: pl.DataFrame) -> PageTable:
    """The rows of `unmatched_users`, with the user assets that each name may stand for by `closest_users`."""
    best_first = pl.col("user_id").sort_by("score", "user_id", descending=[True, False])
    perhaps = closest.group_by("username").agg(perhaps=best_first)
    rows = unmatched.join(perhaps, on="username", how="left", maintain_order="left")
    rows = rows.with_columns(user=pl.concat_list(_account()))
    columns: dict[str, Parts] = {
        "User": (("people", "user"),),
        "Hosts without owner": (("number", "hosts_waiting"),),
        "Hosts used": (("number", "hosts"),),
        "Logons": (("number", "events"),),
        "User assets": (("people", "candidate_ids"),),
        "Did you mean": (("people", "perhaps"),),
    }
    return PageTable("Unmatched users", rows, columns)


def writes_table(writes: pl.DataFrame) -> PageTable:
    """What the run wrote, or planned to write."""
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
    rows = _with_names(in_order(writes)).with_columns(
        **changed,
        owner=pl.concat_list(after["owner"]).list.drop_nulls(),
        owner_before=pl.concat_list(before["owner"]).list.drop_nulls(),
        meaning=_sentence("outcome", OUTCOME),
        words=pl.col("outcome").str.replace_all("_", " "),
        at=pl.coalesce("completed_at", "intended_at").dt.strftime("%Y-%m-%d %H:%M"),
    )
    filters = {outcome: (outcome.replace("_", " "), pl.col("outcome") == outcome) for outcome in OUTCOME}
    columns: dict[str, Parts] = {
        "Host": _HOST,
        "Outcome": (("text", "words"), ("small", "meaning"), ("small", "message")),
        "Owner before": (("people", "owner_before"),),
        "Owner": (("people", "owner"),),
        "Department": (("text", "department"),),
        "Criticality": (("text", "criticality"),),
        "When (UTC)": (("text", "at"),),
    }
    return PageTable("Writes", rows.head(MAX_ROWS), columns, filters)


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
    for stage, reason in drop_outs(decisions).select("stage", "reason").iter_rows():
        column = "match" if reason in MATCH else "evidence"
        holds = STAGES[stage] & (pl.col(column) == reason)
        filters[link(stage, reason)] = (f"{stage}: {reason.replace('_', ' ')}", holds)
    return filters


def _sentence(column: str, sentences: Mapping[str, str]) -> pl.Expr:
    return pl.col(column).replace_strict(sentences, default=None, return_dtype=pl.String)


def _account() -> pl.Expr:
    """A user name without one user asset, marked so that it is not taken for an id."""
    return pl.format("{} (account)", "username")


def _with_names(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the words for a host: host, asset."""
    return frame.with_columns(
        host=pl.col("hostname").fill_null("no host name"), asset=pl.col("host_id").fill_null("no host asset")
    )


def _on_day(words: str, moment: str) -> pl.Expr:
    return pl.format(words, pl.col(moment).dt.strftime("%Y-%m-%d"))
