"""Made-up evidence and inventory of any size, stored as the product stores them.

Each host has a main user; on three hosts of four there are guests besides, a few colleagues who come again
and strangers who come once. Some names come in several spellings.
"""

import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl

from ownership.declaration import polars_schema
from ownership.tables import InventoryHosts, InventoryUsers, LogonCounts, LogonDays
from ownership.windows import Window, days_of
from resources.store.tables import Tables

SLUG = "bench"
RUN = "bench"
LOG = "logs-*"
WINDOW = Window(date(2026, 1, 1), date(2026, 1, 30))
LISTED_AT = datetime(2026, 1, 31, tzinfo=UTC)
COLLEAGUES = 8
DISTINCT = 0.733
"""Share of the drawn rows of a day that are not drawn twice."""
FIRST_NAMES = ("al", "anna", "bo", "chloe", "dmitri", "francesca", "giovanni", "jonathan", "kim", "oluwaseun")
LAST_NAMES = (
    *("ek", "garcia", "hansen", "ivanova", "kowalczyk"),
    *("lee", "macdonald", "pavlopoulos", "ruiz", "wu"),
)


def prepare(home: Path, *, rows: int, hosts: int, users: int, window: Window = WINDOW) -> None:
    """Store about `rows` rows of logon_counts of a window, and the assets; nothing when they are there."""
    done = home / "prepared"
    if done.exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    tables = Tables(home, SLUG)
    for day in days_of(window):
        counts = _day(day, round(rows / window.days / DISTINCT), hosts, users)
        events = int(counts["events"].sum())
        numbers = {"matching": events, "counted": events, "lacking_user": 0, "lacking_host": 0}
        origin = {"day": day, "fetched_at": LISTED_AT, "settings_fingerprint": "bench", "log": LOG}
        fetched = {**numbers, **origin}
        tables.write_days([(pl.DataFrame([fetched], schema=polars_schema(LogonDays)), counts)])
    tables.write("inventory_hosts", _hosts(hosts, users), run_id=RUN, publish=True)
    tables.write("inventory_users", _users(users), run_id=RUN, publish=True)
    done.touch()


def user_name(number: pl.Expr) -> pl.Expr:
    """A name such as `anna.garcia12`, 5 to 25 characters."""
    first, last = (
        (digit % 10).replace_strict(range(10), names, return_dtype=pl.String)
        for digit, names in ((number, FIRST_NAMES), (number // 10, LAST_NAMES))
    )
    return pl.format("{}.{}{}", first, last, number // 100)


def host_name(number: pl.Expr) -> pl.Expr:
    """A name such as `desktop-0000500`, as long as Windows allows and gives by itself."""
    return pl.format("desktop-{}", number.cast(pl.String).str.zfill(7))


def random_number(seed: int, part: int, below: int) -> pl.Expr:
    """A number at random for each row: the same for the same seed and part."""
    return (pl.col("row").hash(100 * seed + part) % below).cast(pl.Int64)


def draw(seed: int, size: int, hosts: int, users: int) -> pl.LazyFrame:
    """Draw so many logons: row, host, user, all of them numbers."""
    host, kind = pl.col("host"), random_number(seed, 2, 100)
    user = (
        pl.when((kind < 55) | (host % 4 == 0))
        .then(host)
        .when(kind < 90)
        .then(host * 3 + 1 + random_number(seed, 3, COLLEAGUES))
        .otherwise(random_number(seed, 4, users))
    )
    rows = pl.LazyFrame({"row": pl.int_range(size, eager=True)})
    return rows.with_columns(host=random_number(seed, 1, hosts)).with_columns(user=user % users)


def _day(day: date, rows: int, hosts: int, users: int) -> pl.DataFrame:
    """About `rows` rows of logon_counts, sorted by name as the search service gives them."""
    seed = day.toordinal()

    def spelled(name: pl.Expr, number: pl.Expr, part: int) -> pl.Expr:
        """A tenth of the names come in capitals every other time."""
        capitals = (number % 10 == 0) & (random_number(seed, part, 2) == 0)
        return pl.when(capitals).then(name.str.to_uppercase()).otherwise(name)

    host, user = pl.col("host"), pl.col("user")
    main = user == host % users
    return (
        draw(seed, rows, hosts, users)
        .select(
            document_hostname=spelled(host_name(host), host, 5),
            document_username=spelled(user_name(user), user, 6),
            events=pl.when(main).then(2 + random_number(seed, 7, 7)).otherwise(1 + random_number(seed, 7, 3)),
        )
        .group_by("document_hostname", "document_username")
        .agg(pl.sum("events"))
        .sort("document_hostname", "document_username")
        .with_columns(day=pl.lit(day), document_logon_type=pl.lit(None, pl.String), log=pl.lit(LOG))
        .select(polars_schema(LogonCounts).names())
        .collect()
    )


def _assets(number: int, **columns: pl.Expr) -> pl.LazyFrame:
    """So many assets with these columns, and those that all have."""
    rows = pl.LazyFrame({"number": pl.int_range(number, eager=True)}).with_columns(name=columns.pop("name"))
    return rows.with_columns(
        listed_values=pl.lit([], pl.List(pl.String)),
        problem=pl.lit(None, pl.String),
        listed_at=pl.lit(LISTED_AT, pl.Datetime("us", "UTC")),
        **columns,
    )


def _hosts(hosts: int, users: int) -> pl.DataFrame:
    """Assets for all hosts but one in twenty; a third has an owner, half of those not the main user."""
    number, name = pl.col("number"), pl.col("name")
    several, usual = pl.concat_list(name, name + pl.lit("-old")), pl.concat_list(name.str.to_uppercase())
    owner, nobody = pl.concat_list(user_name((number + number % 2) % users)), pl.lit([], pl.List(pl.String))
    rows = _assets(
        hosts,
        name=host_name(number),
        host_id=pl.format("h{}", number),
        hostnames=pl.when(number % 50 == 1).then(several).otherwise(usual),
        owner_ids=pl.when(number % 3 == 0).then(owner).otherwise(nobody),
        department=pl.lit(None, pl.String),
        criticality=pl.lit("low"),
    )
    return rows.filter(number % 20 != 3).select(polars_schema(InventoryHosts).names()).collect()


def _users(users: int) -> pl.DataFrame:
    """Assets for all users but one in ten; ten people share a surname."""
    number, name = pl.col("number"), pl.col("name")
    mail = pl.concat_list(name + "@corp.example")
    rows = _assets(
        users,
        name=user_name(number),
        user_id=name,
        user_value=mail,
        user_email=mail,
        directory_user_sam_account_name=pl.concat_list(name.str.to_uppercase()),
        directory_user_surname=pl.concat_list(pl.format("surname{}", number // 10)),
        user_department=pl.lit("Sales"),
        criticality=pl.lit("high"),
    )
    return rows.filter(number % 10 != 4).select(polars_schema(InventoryUsers).names()).collect()
