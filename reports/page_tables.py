"""The tables of the report's page, from the stored tables: which rows, in which order, in which words."""

from collections.abc import Mapping

import polars as pl

from ownership.codes import ACTION, EVIDENCE, GONE, MATCH, MEASURE, OUTCOME, SUCCESSES
from ownership.coverage import STAGES, left_behind
from ownership.quality import names_without_user
from reports.rows import MAX_ROWS, Filter, People, RowTable, in_natural_order

_HOST = (("name", "host"), ("small", "asset"))
_HOST_WORDS = {
    "host": pl.col("hostname").fill_null("no host name"),
    "asset": pl.col("host_id").fill_null("no host asset"),
}
_WHY = (("words", "why"), ("note", "what_follows"))
_SHARE = (("percent", "share"), ("logons", "events", "total_events", "active_days"))
_NO_LIST = pl.lit([], pl.List(pl.String))


def hosts_table(decisions: pl.DataFrame, owners: pl.DataFrame, writes: pl.LazyFrame) -> RowTable:
    """All hosts, with who owns each now and why.

    Args:
        decisions: Rows of `owner_decisions`, all of one run.
        owners: As `ownership.coverage.current_owners` finds them.
        writes: Rows of `owner_writes` of all runs.
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
    present = owners.select("host_id", "owner_ids", wrote=pl.when(ours).then(wrote))
    frame = (
        in_natural_order(decisions, "hostname", "host_id")
        .join(present, on="host_id", how="left", maintain_order="left")
        .join(last_writes, on="host_id", how="left", maintain_order="left")
        .with_columns(
            **_HOST_WORDS,
            **_reason("evidence", "match", "action", "outcome"),
            wrote=pl.when(pl.col("outcome").ne_missing("planned")).then("wrote"),
            existing=pl.col("existing_owner").str.split(",").fill_null(_NO_LIST),
            resolved=pl.concat_list(pl.col("resolved_owner")).list.drop_nulls(),
            has_owner=pl.col("owner_ids").list.len() > 0,
            no_owner=pl.when(pl.col("host_id").is_null())
            .then(pl.lit("no host asset"))
            .when(pl.col("owner_ids").is_null())
            .then(pl.lit("not known"))
            .when(pl.col("owner_ids").list.len() == 0)
            .then(pl.lit("none")),
            last_seen=pl.col("last_seen").cast(pl.String),
        )
    )
    frame, filters = _with_filters(frame, _host_filters(decisions))
    columns = {
        "Host": _HOST,
        "Owner": (("people", "owner_ids"), ("note", "no_owner")),
        "Why": (*_WHY, ("note", "wrote")),
        "Leading user": (("user", "username"),),
        "Share": _SHARE,
        "Last seen": (("date", "last_seen"),),
    }
    unseen = (("people", "existing"), ("people", "resolved"))  # by which the machines of a person are found
    rows = frame.head(MAX_ROWS)
    return RowTable("hosts", "Hosts", columns, rows, "No host is known.", filters, unseen)


def _host_filters(decisions: pl.DataFrame) -> dict[str, tuple[str, pl.Expr]]:
    """What the numbers of the page count, by their names in links."""
    filters = {
        "host-assets": ("host assets", pl.col("host_id").is_not_null()),
        "with-owner": ("with an owner now", pl.col("has_owner")),
        "without-owner": ("without an owner now", pl.col("no_owner").eq_missing("none")),
        "had-owner": ("had an owner before the run", pl.col("existing_owner").is_not_null()),
    }
    for stage, holds in STAGES.items():
        filters[link(stage)] = (stage, holds)
    stages = list(STAGES.items())
    for number, (stage, holds) in enumerate(stages[:3]):
        column = "match" if number == 2 else "evidence"
        ends = holds & ~stages[number + 1][1]
        reasons = left_behind(decisions).filter(stage=stage)["reason"]
        for reason in reasons:
            words = f"{stage}: {reason.replace('_', ' ')}"
            filters[link(stage, reason)] = (words, ends & (pl.col(column) == reason))
    return filters


def link(stage: str, reason: str = "") -> str:
    """What a link calls the hosts that come to a stage, or those that end there for a reason."""
    return f"{stage}.{reason}".rstrip(".").replace(" ", "-")


def _with_filters(
    frame: pl.DataFrame, filters: Mapping[str, tuple[str, pl.Expr]]
) -> tuple[pl.DataFrame, list[Filter]]:
    """Number the rows that no filter tells apart as one group, and name the groups of each filter."""
    if not filters:
        return frame, []
    told = frame.with_columns(
        holds.fill_null(value=False).alias(name) for name, (_, holds) in filters.items()
    )
    groups = told.group_by(*filters, maintain_order=True).len().with_row_index("group")
    numbered = frame.with_columns(
        told.join(groups, on=list(filters), how="left", maintain_order="left")["group"]
    )
    made = []
    for name, (words, _) in filters.items():
        held = groups.filter(name)
        made.append(Filter(name, words, held["group"].to_list(), sum(held["len"])))
    return numbered, made


def _reason(evidence: str, match: str, action: str, outcome: str | None = None) -> dict[str, pl.Expr]:
    """Sentences that say why a host has, or has not, this owner: why, what_follows."""
    actions = {**ACTION, GONE: "The host is decided about no more."}
    sentences = [
        pl.col(column).replace_strict(meanings, default=None, return_dtype=pl.String)
        for column, meanings in ((match, MATCH), (action, actions))
    ]
    if outcome:
        sentences.append(pl.col(outcome).replace_strict(OUTCOME, default=None, return_dtype=pl.String))
    return {
        "why": pl.col(evidence).replace_strict(EVIDENCE, default=None, return_dtype=pl.String),
        "what_follows": pl.concat_str(sentences, separator=" ", ignore_nulls=True),
    }


def conflicts_table(hosts: pl.DataFrame) -> RowTable:
    """The hosts whose logons name another owner than they have, the strongest evidence first.

    Args:
        hosts: The rows of `hosts_table`.
    """
    columns = {
        "Host": _HOST,
        "Owner in the inventory": (("people", "existing"),),
        "Owner by the logons": (("people", "resolved"), ("small", "username")),
        "Share": _SHARE,
        "Last seen": (("date", "last_seen"),),
    }
    rows = hosts.filter(action="conflict").sort("share", "events", descending=True, maintain_order=True)
    return RowTable("conflicts", "Conflicts", columns, rows)


def unmatched_table(decisions: pl.DataFrame, shares: pl.DataFrame, matches: pl.DataFrame) -> RowTable:
    """The names that stand for no one user asset, with the hosts that stay without an owner for it."""
    waiting = (
        decisions.filter(pl.col("match").is_in(["no_user_asset", "ambiguous_user"]))
        .group_by("username")
        .agg(hosts_waiting=pl.len())
    )
    candidates = matches.filter("decisive").group_by("username").agg(candidate_ids=pl.col("user_id").sort())
    rows = (
        names_without_user(shares, matches)
        .join(waiting, on="username", how="left", maintain_order="left")
        .join(candidates, on="username", how="left", maintain_order="left")
        .with_columns(
            pl.col("hosts_waiting").fill_null(0),
            pl.col("candidate_ids").fill_null(_NO_LIST),
            nobody=pl.when(pl.col("candidate_ids").is_null()).then(pl.lit("none")),
        )
        .sort("hosts_waiting", descending=True, maintain_order=True)
    )
    columns = {
        "User": (("user", "username"),),
        "Hosts waiting": (("count", "hosts_waiting"),),
        "Hosts used": (("count", "hosts"),),
        "Logons": (("count", "events"),),
        "User assets": (("people", "candidate_ids"), ("note", "nobody")),
    }
    return RowTable("unmatched", "Unmatched users", columns, rows)


def changes_table(changes: pl.DataFrame, *, first_run: bool) -> RowTable:
    """What the run decided otherwise than the one before."""

    def before(column: str) -> pl.Expr:
        """Ids that stood there before, where others do now."""
        was = pl.col(f"{column}_before")
        return pl.when(was.ne_missing(pl.col(column))).then(was).str.split(",").fill_null(_NO_LIST)

    then = _reason("evidence_before", "match_before", "action_before")
    rows = in_natural_order(changes, "hostname", "host_id").with_columns(
        **_HOST_WORDS,
        **_reason("evidence", "match", "action"),
        why_before=then["why"].fill_null("new host"),
        followed=then["what_follows"],
        named_before=before("resolved_owner"),
        named=pl.col("resolved_owner").str.split(",").fill_null(_NO_LIST),
        recorded_before=before("existing_owner"),
        recorded=pl.col("existing_owner").str.split(",").fill_null(_NO_LIST),
    )
    columns = {
        "Host": _HOST,
        "Decided before": (("words", "why_before"), ("note", "followed")),
        "Decided now": _WHY,
        "Owner by the logons": (("old_people", "named_before"), ("people", "named")),
        "Owner in the inventory": (("old_people", "recorded_before"), ("people", "recorded")),
    }
    nothing = "This is the first run." if first_run else "None."
    return RowTable("changes", "Changes", columns, rows.head(MAX_ROWS), nothing)


def writes_table(writes: pl.DataFrame) -> RowTable:
    """What the run wrote, or meant to write."""

    def values(field: str) -> dict[str, pl.Expr]:
        old, new = (pl.col(values).struct.field(field) for values in ("old_values", "new_values"))
        replaced = new.is_not_null() & (old != "") & (old != new)
        return {f"{field}_before": pl.when(replaced).then(old), field: pl.when(new != "").then(new)}

    fields = values("owner") | values("department") | values("criticality")
    rows = in_natural_order(writes, "hostname", "host_id").with_columns(
        **_HOST_WORDS,
        **fields,
        meaning=pl.col("outcome").replace_strict(OUTCOME, return_dtype=pl.String),
        words=pl.col("outcome").str.replace_all("_", " "),
        at=pl.coalesce("completed_at", "intended_at").dt.strftime("%Y-%m-%d %H:%M"),
    )
    rows = rows.with_columns(
        pl.concat_list(name).list.drop_nulls().alias(name) for name in ("owner_before", "owner")
    )
    rows, filters = _with_filters(
        rows,
        {
            outcome.replace("_", "-"): (outcome.replace("_", " "), pl.col("outcome") == outcome)
            for outcome in OUTCOME
            if outcome in rows["outcome"]
        },
    )
    columns = {
        "Host": _HOST,
        "Outcome": (("words", "words"), ("note", "meaning"), ("small", "message")),
        "Owner": (("old_people", "owner_before"), ("people", "owner")),
        "Department": (("old", "department_before"), ("name", "department")),
        "Criticality": (("old", "criticality_before"), ("name", "criticality")),
        "When (UTC)": (("date", "at"),),
    }
    return RowTable("writes", "Writes", columns, rows.head(MAX_ROWS), "Nothing.", filters)


def departments_table(departments: pl.DataFrame) -> RowTable:
    """How many hosts of each department had an owner, and have one now.

    Args:
        departments: As `ownership.coverage.owned_by_department` counts them.
    """
    rows = departments.with_columns(
        none=pl.when(pl.col("department").is_null()).then(pl.lit("no department")),
        owned_share=pl.col("owned") / pl.col("hosts"),
        owned_after_share=pl.col("owned_after") / pl.col("hosts"),
    )
    columns = {
        "Department": (("name", "department"), ("note", "none")),
        "Host assets": (("count", "hosts"),),
        "Had an owner": (("percent", "owned_share"), ("part", "owned", "hosts")),
        "Have an owner": (("percent", "owned_after_share"), ("part", "owned_after", "hosts")),
    }
    return RowTable("departments", "Departments", columns, rows, "There are no host assets.")


def accuracy_table(accuracy: pl.DataFrame) -> RowTable:
    """How often the owner decided on was the right one, in all and by the leader's share.

    Args:
        accuracy: Rows of `accuracy`, as tuning left them last.
    """
    rows = accuracy.filter(pl.col("by").is_in(["all", "share_band"])).with_columns(
        measure=pl.col("measure").replace_strict(MEASURE, return_dtype=pl.String).str.strip_chars("."),
        value=pl.when(by="all").then(pl.lit("all hosts")).otherwise("value"),
    )
    columns = {
        "Compared with": (("words", "measure"),),
        "The leader's share": (("words", "value"),),
        "Were right": (("percent", "precision"), ("part", "right_hosts", "hosts")),
        "At least": (("percent", "low"),),
        "At most": (("percent", "high"),),
    }
    return RowTable(
        "accuracy", "How often owners were right", columns, rows, "Tuning has not run yet: asset-owners tune."
    )


def lacking_days_table(days: pl.DataFrame) -> RowTable:
    """The days of the window on which events look lost."""
    words = {"gap": "hardly any events, or none"}
    rows = days.filter(pl.col("state") != "ok").with_columns(
        pl.col("day").cast(pl.String), pl.col("state").replace(words)
    )
    columns = {
        "Day": (("date", "day"),),
        "Events": (("count", "events"),),
        "What is wrong": (("words", "state"),),
    }
    return RowTable("lacking-days", "Days that lack events", columns, rows, "No day lacks events.")


def people_of(matches: pl.DataFrame, labels: Mapping[str, str]) -> People:
    """Whom the user names of the logons stand for.

    Args:
        matches: Rows of `username_matches`.
        labels: What to call user assets, by id.
    """
    decisive = matches.filter("decisive")
    candidates = (
        matches.group_by("username", maintain_order=True)
        .agg(
            candidate_ids=pl.col("user_id").filter("decisive").sort(),
            readable=pl.col("problem").is_null().all(),
        )
        .with_columns(one=(pl.col("candidate_ids").list.len() == 1) & pl.col("readable"))
    )
    one = candidates.filter("one").select("username")
    return People(
        labels,
        decisive.join(one, on="username", how="semi").select("username", "user_id"),
        candidates.filter(~pl.col("one")).select("username", "candidate_ids"),
    )


def logons_of(shares: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Which user logged on to which host, under any of the host's names, and how often.

    Args:
        shares: Rows of `host_user_shares`.
        hosts: The rows of `hosts_table`.

    Returns:
        username, row (of the table), events, active_days (null: not known, which it is of a host with logons
        under several names for its leading user alone), last_seen.
    """
    names = (
        hosts.lazy()
        .select(
            hostname=pl.coalesce("hostnames", pl.concat_list("hostname")),
            leader="username",
            days_of_leader="active_days",
        )
        .with_row_index("row")
        .explode("hostname")
        .drop_nulls()
    )
    return (
        shares.lazy()
        .join(names, on="hostname")
        .group_by("username", "row")
        .agg(
            pl.sum("events"),
            pl.max("last_seen").cast(pl.String),
            active_days=pl.when(pl.len() == 1)
            .then(pl.first("active_days"))
            .when(pl.first("leader") == pl.first("username"))
            .then(pl.first("days_of_leader")),
        )
        .sort("username", "row")
        .collect()
    )


def people_table(hosts: pl.DataFrame, logons: pl.DataFrame, people: People) -> RowTable:
    """The people who own hosts, whom the logons name, or who log on; those with most machines first.

    Args:
        hosts: The rows of `hosts_table`.
        logons: As `logons_of` finds them.
        people: As `people_of` finds them.
    """

    def counted(owners: pl.Expr, name: str) -> pl.DataFrame:
        return (
            hosts.select(user_id=owners)
            .explode("user_id")
            .drop_nulls()
            .group_by("user_id")
            .agg(pl.len().alias(name))
        )

    used = (
        logons.join(people.accounts, on="username")
        .group_by("user_id")
        .agg(hosts_used=pl.col("row").n_unique(), logons=pl.sum("events"))
    )
    rows = used
    for each in (
        counted(pl.col("owner_ids"), "owned"),
        counted(pl.col("resolved"), "named"),
        counted(pl.col("existing"), "recorded"),
    ):
        rows = rows.join(each, on="user_id", how="full", coalesce=True)
    rows = (
        rows.with_columns(pl.col("owned", "named", "recorded", "hosts_used", "logons").fill_null(0))
        .sort("owned", "named", "hosts_used", "user_id", descending=[True, True, True, False])
        .with_columns(person=pl.concat_list("user_id"))
    )
    columns = {
        "Person": (("people", "person"),),
        "Owns": (("count", "owned"),),
        "Named by the logons": (("count", "named"),),
        "Logs on to": (("count", "hosts_used"),),
        "Owned before the run": (("count", "recorded"),),
    }
    return RowTable("people", "People", columns, rows.head(MAX_ROWS), "Nobody owns a host or logs on.")
