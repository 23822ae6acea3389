"""One page on what the last run found: HTML that needs no other file and no network.

Names may have been chosen with bad intentions. They are escaped everywhere, characters that do not print
included, and the script gets them compressed and shows them as text. The page's own policy lets a browser run
this very script and load nothing.
"""

import base64
import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import polars.selectors as cs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from upath import UPath

from ownership.codes import OUTCOME, short_words
from ownership.decisions import STAGES, funnel, owned_percent
from ownership.matching import ACCOUNT_FIELDS, Present, candidates
from ownership.names import counted, normalise_username, printable, split_ids
from ownership.rules import Rules
from ownership.windows import Window
from reports.exports import FORMULA
from reports.plan import change, sent_changes
from reports.sentences import NO_SUCH_ASSET, display_names, doubts
from reports.story import NEED_A_PERSON, NOT_WRITTEN_YET, STATUS, sort_by_name, with_words

_FOLDER = Path(__file__).parent
_BINS = 10
MAX_TEXT = 1_000
"""Characters of a text in the page: one of our sentences has up to 300 with long names."""
MAX_ROWS = 50_000
"""Rows of one list in the page: more would make it too large for a browser and for an e-mail."""
STRIP_DAYS = 30
"""Days of the strips, the last of the window."""
MAX_STRIPS = 12
"""Users of a host with a strip: the ones with most logons."""
FEW_DAYS = 3
"""On fewer days with a logon an owner is doubtful."""
FUNNEL = (*STAGES,)[:4]
"""How far a host comes, which `stage` counts: 1 known, 2 logons, 3 a primary user, 4 one user asset."""
TABLES = (
    *("host_user_shares", "username_matches", "inventory_users"),
    *("unmatched_users", "closest_users", "host_profiles"),
)


def report_page(
    read: Callable[[str], pl.LazyFrame],
    *,
    hosts_now: pl.DataFrame,
    counts: pl.LazyFrame,
    days: pl.DataFrame,
    writes: pl.DataFrame,
    earlier_writes: pl.DataFrame,
    coverage: tuple[Sequence[tuple[date, float]], Mapping[str, Any] | None],
    window: Window | None,
    is_plan: bool,
    decided_by: Rules,
    present: Present,
    **texts: Any,
) -> str:
    """Return the page of one run; `read` gives the stored tables that it worked on (`TABLES`).

    `hosts_now` are rows of `reports.story.hosts_by_now`, `days` of `ownership.decisions.events_by_day`,
    `coverage` is that of `coverage_by_day`; `writes` are the run's and `earlier_writes` those of
    others. `decided_by` are the run's rules. `texts` go into `page.html` as they are: instance, made_at,
    fingerprint (for `page_fingerprint`), apply (a command), tried (lines for the instance file), how_sure
    (sentences), answered_no (a sentence and commands). The page is to be stored as it is: its policy names
    its script by a hash.
    """
    shares, matches, users, unmatched, closest, kinds = (read(table).collect() for table in TABLES)
    names = display_names(users)
    people = People(users, names)
    rows = hosts_now
    if rows.height > MAX_ROWS:
        rows = rows.filter(pl.col("status").is_in(NEED_A_PERSON)).head(MAX_ROWS)
    told = with_words(rows, users, names, present)
    assets = hosts_now.drop_nulls("host_id")
    last_day = window.last if window else None
    measured = "confidence" if assets["confidence"].count() else "share"
    content = {
        "formula": FORMULA,
        "plan": is_plan,
        "measured": measured,
        "windowDays": window.days if window else 0,
        "lastDay": last_day and last_day.isoformat(),
        "statuses": STATUS,
        "stages": FUNNEL,
        "hostnameField": present.fields.hostname,
        "shortHostnames": decided_by.short_hostnames,
        "hosts": hosts_columns(told, kinds, people, present),
        "users": users_columns(rows, shares, matches, counts, last_day, people),
        "unmatched": unmatched_columns(unmatched, closest, people),
        "writes": writes_columns(writes, earlier_writes, people),
    }
    content["people"] = people.columns()
    script = _text("page.js") + _text("panel.js")
    style = _text("page.css")
    after = hosts_now.with_columns(
        existing_owner=pl.coalesce("planned_owner", pl.col("owner_ids").list.first())
    )
    sure = (assets.filter(status="planned") if is_plan else assets)[measured].drop_nulls()
    tenths = (sure.round(4) * _BINS).floor().clip(0, _BINS - 1).to_list()  # rounded as in the list
    statuses = dict(hosts_now.group_by("status").len().iter_rows())
    return (
        _environment()
        .get_template("page.html")
        .render(
            policy=f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}",
            script=script,
            style=style,
            packed=compress_json(content),
            is_plan=is_plan,
            run=next(hosts_now.iter_rows(named=True), None),
            window=window,
            rules=decided_by,
            events=days["events"].sum(),
            lacking_days=days.filter(pl.col("state") != "ok").to_dicts(),
            hosts=assets.height,
            statuses={status: statuses.get(status, 0) for status in STATUS},
            later=hosts_now.filter(why=NOT_WRITTEN_YET).height,
            acknowledged=hosts_now["acknowledged_at"].count(),
            unmatched=unmatched.height,
            all_in_page=rows.height == hosts_now.height,
            owned=(owned_percent(hosts_now), owned_percent(after)),
            coverage=coverage[0],
            last_written=coverage[1],
            stages=funnel(assets).rows()[: len(FUNNEL)],
            measured=measured,
            bins=[tenths.count(number) for number in range(_BINS)],
            **texts,
        )
    )


def page_fingerprint(file: Path | UPath) -> str | None:
    """Return the fingerprint of a stored page; None without a page, or for one without a fingerprint."""
    if not file.exists():
        return None
    with file.open(encoding="utf-8") as page:
        found = re.search('name="fingerprint" content="([0-9a-f]+)"', page.read(1_000))  # it is in the head
    return found and found[1]


def _text(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704  (a file beside this one)


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shown": shown, "count": "{:,}".format}
    return environment


class People:
    """Numbers for the people of the page, so that each name is in it once.

    A person is a user asset, by its id, or an account without one.
    """

    def __init__(self, users: pl.DataFrame, names: Mapping[str, str]) -> None:
        held = pl.concat_list(pl.col(each).fill_null([]) for each in ("user_value", *ACCOUNT_FIELDS))
        further = held.list.set_union(held.list.eval(normalise_username(pl.element()))).list.join(" ")
        details = users.select(
            "user_id", address=pl.col("user_email").list.first(), department="user_department", names=further
        )
        self._details = details.rows_by_key("user_id", named=True, unique=True)
        self._names = names
        self._numbers: dict[tuple[str, bool], int] = {}

    def assets(self, ids: pl.Series) -> list[Any]:
        """Return the numbers of user assets: a list for each list of ids, or one for each id."""
        values, number = ids.to_list(), self._number
        if ids.dtype == pl.List:
            return [None if each is None else [*map(number, each)] for each in values]
        return [None if user_id is None else number(user_id) for user_id in values]

    def account(self, username: str) -> int:
        """Return the number of an account without a user asset."""
        return self._number(username, is_account=True)

    def _number(self, key: str, *, is_account: bool = False) -> int:
        return self._numbers.setdefault((key, is_account), len(self._numbers))

    def columns(self) -> dict[str, list[str | None]]:
        """Return what the page shows of everybody who has a number."""
        rows = []
        for key, is_account in self._numbers:
            unnamed = key if key in self._details else f"{key} ({NO_SUCH_ASSET})"
            asset = {"key": key, "name": self._names.get(key, unnamed)} | self._details.get(key, {})
            rows.append({"key": f"{key} (account)", "name": key} if is_account else asset)
        columns = ("key", "name", "address", "department", "names")
        return {name: shown_texts([row.get(name) for row in rows]) for name in columns}


def hosts_columns(
    hosts: pl.DataFrame, kinds: pl.DataFrame, people: People, present: Present
) -> dict[str, Any]:
    """Return the columns of hosts: rows of `story.with_words`; `kinds` are those of `host_profiles`."""
    written = hosts.select("host_id", "owner_ids", "source", "wrote_in").iter_rows(named=True)
    named = hosts.select(pl.when(status="conflict").then("host_id")).to_series()
    by_asset = kinds.drop_nulls("host_id").select("host_id", "kind").unique("host_id")
    rows = hosts.join(by_asset, on="host_id", how="left", maintain_order="left").select(
        "host_id",
        "status",
        "why",
        "share",
        "confidence",
        "kind",
        "acknowledged_by",
        username=pl.when(pl.col("resolved_owner").is_null()).then("username"),
        sentence="summary",
        remedy=pl.col("what_would_change").list.first(),
        name=pl.coalesce("hostname", "host_id"),
        names=pl.when(pl.col("hostnames").list.len() > 1).then(pl.col("hostnames").list.join(" ")),
        department=pl.coalesce("planned_department", "department"),
        departments=show_change("department"),
        criticality=show_change("criticality"),
        seen=pl.col("last_seen").cast(pl.String),
        conflict_since=pl.col("conflict_since").dt.date().cast(pl.String),
        acknowledged_at=pl.col("acknowledged_at").dt.date().cast(pl.String),
        stage=pl.sum_horizontal(STAGES[name].fill_null(value=False) for name in FUNNEL),
    )
    return {
        **_columns(rows),
        "doubts": [*map(_doubts, hosts.iter_rows(named=True))],
        "note": [note and printable(note) for note in hosts["note"]],  # whole: the sentence cuts it
        "undo": [*map(present.undo_as_wrong, written)],
        "acknowledge": [one and present.acknowledge(one) for one in named],
        "owners": people.assets(hosts["owner_ids"]),
        "planned": people.assets(hosts["planned_owner"]),
        "primary": people.assets(hosts["resolved_owner"]),
    }


def _doubts(host: Mapping[str, Any]) -> str:
    days = host["active_days"] or FEW_DAYS
    few = [f"on {counted(days, 'day')}"] if days < FEW_DAYS else []
    return ", ".join([*few, *doubts(host)])


def show_change(name: str) -> pl.Expr:
    """Return what a host has, or what it has and would get."""
    return pl.coalesce(change(name, pl.col(name), pl.col(f"planned_{name}")), name)


def users_columns(
    hosts: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    counts: pl.LazyFrame,
    last_day: date | None,
    people: People,
) -> dict[str, Any]:
    """Return the users of each host, the host's rows one after the other, those with most logons first.

    `users` says how many there are of each host, `account` who, `days` on which of the last days they logged
    on (a bit each, the last day the highest one; 0 for users without a strip). The accounts themselves are
    `accounts`: name and person.
    """
    by_host = (
        hosts.with_row_index("row")
        .select("row", hostname=pl.coalesce("hostnames", pl.concat_list("hostname")))
        .explode("hostname")
        .join(shares, on="hostname")
        .join(_strips(counts, shares, last_day), on=("hostname", "username"), how="left")
        .group_by("row", "username")
        .agg(pl.sum("weight", "events"), days=pl.col("days").bitwise_or())
        .sort("row", "weight", "username", descending=[False, True, False])
    )
    numbers = by_host.select(pl.col("username").unique(maintain_order=True)).with_row_index("account")
    found = candidates(matches.lazy()).select("username", "resolved_owner").collect()
    accounts = numbers.join(found, on="username", how="left", maintain_order="left")
    persons = people.assets(accounts["resolved_owner"])
    by_host = by_host.join(numbers, on="username", maintain_order="left")
    users = Counter(by_host["row"])
    return {
        "users": [users[row] for row in range(hosts.height)],
        "account": by_host["account"].to_list(),
        "events": by_host["events"].to_list(),
        "days": by_host["days"].fill_null(0).to_list(),
        "accounts": {
            "name": shown_texts(accounts["username"].to_list()),
            "person": [
                people.account(name) if person is None else person
                for name, person in zip(accounts["username"], persons, strict=True)
            ],
        },
    }


def _strips(counts: pl.LazyFrame, shares: pl.DataFrame, last_day: date | None) -> pl.DataFrame:
    """Return on which of the last days a user logged on to a host, a bit each: hostname, username, days."""
    top = shares.filter(pl.col("rank") <= MAX_STRIPS)
    spelled = (
        top.lazy()
        .select(
            "hostname",
            "username",
            document_hostname="hostname_spellings",
            document_username="username_spellings",
        )
        .explode("document_hostname")
        .explode("document_username")
    )
    place = (pl.col("day") - pl.lit(last_day, pl.Date)).dt.total_days() + STRIP_DAYS - 1
    return (
        counts.with_columns(place=place)
        .filter(pl.col("place").is_between(0, STRIP_DAYS - 1))
        .join(spelled, on=("document_hostname", "document_username"))
        .group_by("hostname", "username")
        .agg(days=pl.lit(2).pow(pl.col("place")).cast(pl.Int64).bitwise_or())
        .collect(engine="streaming")
    )


def unmatched_columns(unmatched: pl.DataFrame, closest: pl.DataFrame, people: People) -> dict[str, Any]:
    """Return the rows of `unmatched_users`, with the user assets that each name may stand for."""
    best_first = pl.col("user_id").sort_by("score", "user_id", descending=[True, False])
    perhaps = closest.group_by("username").agg(perhaps=best_first)
    rows = unmatched.head(MAX_ROWS).join(perhaps, on="username", how="left", maintain_order="left")
    return {
        **_columns(rows.select("hosts_waiting", "hosts", "events")),
        "user": [*map(people.account, rows["username"])],
        "candidates": people.assets(rows["candidate_ids"]),
        "perhaps": people.assets(rows["perhaps"]),
    }


def writes_columns(writes: pl.DataFrame, earlier: pl.DataFrame, people: People) -> dict[str, Any]:
    """Return what the run wrote or planned, and after that what earlier runs wrote.

    `own` says which are the run's.
    """
    rows = pl.concat([sort_by_name(writes).with_columns(own=1), earlier.with_columns(own=0)]).head(MAX_ROWS)
    old, new = pl.col("old_values").struct, pl.col("new_values").struct
    _, department, criticality = sent_changes()
    columns = rows.select(
        "own",
        "host_id",
        "by",
        "message",
        name=pl.coalesce("hostname", "host_id"),
        outcome=pl.col("outcome").replace(short_words(OUTCOME)),
        department=department,
        criticality=criticality,
        at=pl.coalesce("completed_at", "intended_at").dt.strftime("%Y-%m-%dT%H:%MZ"),
        run=pl.col("run_id").str.head(8),
    )
    owners = rows.select(
        before=split_ids(old.field("owner").replace("", None)),
        after=pl.when(new.field("owner") != "").then(pl.concat_list(new.field("owner"))),
    )
    return {
        **_columns(columns),
        "before": people.assets(owners["before"]),
        "after": people.assets(owners["after"]),
    }


def coverage_by_day(runs: pl.LazyFrame) -> tuple[list[tuple[date, float]], dict[str, Any] | None]:
    """Return how many of the host assets had an owner (percent) after the last run of each of the last days.

    And what the last run that wrote came from and to: before, after, run_id and day; None: no run wrote.
    """
    day, percent = pl.col("started_at").dt.date(), (pl.col("^owned_.*$") * 100 / pl.col("hosts")).round(1)
    known = (
        runs.filter(pl.col("owned_after").is_not_null(), pl.col("hosts") > 0, status="succeeded")
        .filter(pl.col("kind").is_in(["run", "apply", "undo"]), day > day.max() - pl.duration(days=90))
        .sort("started_at")
        .select("run_id", "written", percent.name.replace("owned_", ""), day=day)
        .collect()
    )
    wrote = known.filter(pl.col("written") > 0).drop("written").tail(1)
    days = known.group_by("day", maintain_order=True).agg(pl.last("after"))
    return days.rows(), next(wrote.iter_rows(named=True), None)


def _columns(frame: pl.DataFrame) -> dict[str, list[Any]]:
    """Return the values of each column as the page shows them: numbers to four places, texts as `shown`."""
    rounded = frame.with_columns(cs.float().round(4)).to_dict(as_series=False)
    return rounded | {name: shown_texts(rounded[name]) for name in frame.select(cs.string()).columns}


def compress_json(content: Mapping[str, Any]) -> str:
    """Return content as JSON, by gzip and as base64: a fifth of the size, and nothing in it is markup."""
    text = msgspec.json.encode(content)
    return base64.b64encode(gzip.compress(text, compresslevel=1, mtime=0)).decode()


def shown(text: str) -> str:
    """Return a text as the page may show it: printable, and not too long."""
    return printable(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…")


def shown_texts(texts: list[str | None]) -> list[str | None]:
    """Return texts as `shown`; the same list if all of them are so already."""
    given = [text for text in texts if text]
    if "".join(given).isprintable() and max(map(len, given), default=0) <= MAX_TEXT:
        return texts
    return [text and shown(text) for text in texts]
