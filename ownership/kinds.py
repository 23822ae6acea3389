"""What kind of account each user name is, and what kind of machine each host, with the reasons.

The first rule that holds gives the kind, and each of that kind that holds is a reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ownership import kind_names
from ownership.declaration import polars_schema
from ownership.evidence import Evidence
from ownership.kind_names import LETTERS, SPELLED_OUT, Forms
from ownership.matching import FIELDS
from ownership.names import normalise_hostname, normalise_username
from ownership.rules import exceeds_threshold, first_that_holds
from ownership.tables import AccountProfiles, HostProfiles

MANY_HOSTS = 20
"""Hosts of a primary user from which on the account may not be a person's: ward staff share theirs evenly."""
HOSTS_A_DAY = 2.5
"""Hosts on an average active day that it must have, too: virtual desktops are another one each day."""
OWN_DAYS = 5
"""Days with a logon from which on a machine is its primary user's, whatever its name."""
SHORT_SURNAME = 3
"""Letters up to which a surname in a login needs the rest of the login to be the person's, too."""
MANY_USERS = 10
"""Users from which on a machine that all of them use alike is nobody's."""
COLLECTED_USERS = 50
"""Users from which on a host name stands for what collects the events of many machines."""
OFTEN = 0.4
"""Part of the active days on which each of them is seen there, on average: seldom so on shared machines."""
OTHER_COMPUTERS = 2
"""Accounts of other computers from which on a machine serves them."""
EVEN = 0.8
"""Normalised entropy of the users' shares from which on all of them use a machine alike."""

_BUILT_IN = pl.Series([name for names in kind_names.BUILT_IN.values() for name in names.split(", ")])
_IS_USER = pl.col("kind").is_in(["person", "administrator", "unknown"])

_Rule = tuple[str, pl.Expr, str | pl.Expr]
"""A kind, when something is of it, and the reason to give."""


@dataclass(frozen=True)
class Kinds:
    """Rows of `account_profiles` and of `host_profiles`, made of the same logons."""

    accounts: pl.DataFrame
    hosts: pl.DataFrame


def account_profiles(evidence: Evidence, matches: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Classify the user names of evidence that excludes no user.

    `matches` are rows of `username_matches`, `users` of `inventory_users`. Rows of `account_profiles`, sorted
    by username. With a user asset, nobody is a service or administrator by the name: people are called Job.
    """
    assets = matches.filter("decisive").group_by("username").agg(user_assets=pl.len().cast(pl.Int64))
    name, hosts, user_assets = pl.col("username"), pl.col("hosts"), pl.col("user_assets")
    a_day, of_person = pl.col("host_days") / pl.col("active_days"), (user_assets > 0) | pl.col("surname")
    roams = (pl.col("hosts_with_majority") >= MANY_HOSTS) & (a_day >= HOSTS_A_DAY)
    roaming = pl.format("it logs on to {} hosts, {} on an average active day.", hosts, a_day.round(1))
    with_adm = ~of_person & pl.col("administrator_of")
    assets_text = pl.format("The name is that of {}.", _counted(user_assets, "user asset"))
    rules: list[_Rule] = [
        *((kind, holds & ~of_person, reason) for kind, holds, reason in _name_rules(name)),
        ("administrator", with_adm, "The name is a user asset's with adm before or after it."),
        ("service", ~of_person & roams, pl.format("No user asset has the name, and {}", roaming)),
        ("administrator", roams, pl.format("A user asset has the name, and {}", roaming)),
        ("person", user_assets > 0, assets_text),
        ("person", pl.col("surname"), "The surname of a user asset is part of the name."),
    ]
    text = name.cast(pl.String)
    of_machine = normalise_username(text).str.ends_with("$") | _is_built_in(text)
    people = evidence.days.select(name).unique().filter(~of_machine)
    majorities = (
        evidence.days.join(people, on="username", how="semi")
        .group_by("subject", "username")
        .agg(pl.sum("events"))
        .group_by("subject")
        .agg(weight=pl.max("events"), total_weight=pl.sum("events"))
        .select("subject", has_majority=exceeds_threshold(evidence.rules.share_threshold_percent))
    )
    return (
        evidence.days.join(majorities, on="subject", how="left")
        .group_by(name)
        .agg(
            hosts_with_majority=pl.col("subject").filter("has_majority").n_unique(),
            hosts=pl.col("subject").n_unique().cast(pl.Int64),
            active_days=pl.col("day").n_unique().cast(pl.Int64),
            host_days=pl.len().cast(pl.Int64),
        )
        .with_columns(name.cast(pl.String))
        .join(assets.lazy(), on="username", how="left")
        .join(_user_asset_names(matches, users), on="username", how="left")
        .with_columns(user_assets.fill_null(0), pl.col("surname", "administrator_of").fill_null(value=False))
        .with_columns(*_kind_and_reasons(rules))
        .select(*polars_schema(AccountProfiles))
        .sort("username")
        .collect(engine="streaming")
    )


def _name_rules(name: pl.Expr) -> list[_Rule]:
    """Return the rules that read a name alone, without the domain that it may have."""
    built_in, name = _is_built_in(name), normalise_username(name)
    computer, services = name.str.ends_with("$"), _fits(name, kind_names.SERVICE)
    managed, administrators = _fits(name, kind_names.MANAGED_SERVICE), _fits(name, kind_names.ADMINISTRATOR)
    return [
        ("built_in", built_in, "Windows or another product gives this name."),
        ("service", services & (~computer | managed), "The name is one that services are given."),
        ("computer", computer, "The name ends with $, as a computer's does."),
        ("administrator", administrators, "The name is one that administrators are given."),
    ]


def _is_built_in(username: pl.Expr) -> pl.Expr:
    """Whether Windows or another product gives a name; a private Microsoft account is a person's."""
    domain, name = username.str.extract(r"(?s)^(.*)\\"), _folded(normalise_username(username))
    of_windows = domain.is_in(kind_names.AUTHORITIES) & (domain != kind_names.PRIVATE_ACCOUNTS)
    known = name.is_in(_folded(pl.lit(_BUILT_IN)).implode()) | _fits(name, kind_names.BUILT_IN_FORMS)
    return of_windows.fill_null(value=False) | known


def _user_asset_names(matches: pl.DataFrame, users: pl.DataFrame) -> pl.LazyFrame:
    """Find names related to a user asset: username, surname and administrator_of (its name, without `adm`).

    surname: one is part of it, and the rest is an initial, begins the e-mail address, or no rule takes it. A
    short surname stands in many words: there the last is not enough, unless it is a separate part.
    """
    surname, username = pl.col("surname"), pl.col("username")
    names = matches.lazy().select("username").unique()
    spelled = pl.concat_list("directory_user_surname", pl.col("directory_user_surname").list.eval(_last_word))
    surnames = (
        users.lazy()
        .select(surname=spelled, email=pl.col("user_email").list.first().str.to_lowercase())
        .explode("surname")
        .with_columns(surname=pl.concat_list(_plain(surname, LETTERS), _plain(surname, SPELLED_OUT)))
        .explode("surname")
        .filter(pl.col("surname").str.len_chars() > 1)
        .unique(["surname", "email"])
        .collect()
    )
    patterns = pl.lit(surnames["surname"].unique()).implode()
    email = pl.col("email").fill_null("")
    rest = username.str.split(surname).list.join("")
    initials = rest.str.replace_all(r"[-_.]|\d+$", "")
    rule_takes_rest = pl.any_horizontal(
        holds for each in (rest, rest.str.strip_chars("-_.")) for _, holds, _ in _name_rules(each)
    )
    is_part = username.str.split("_").list.join("-").str.split("-").list.contains(surname)
    person = (
        names.with_columns(surname=username.str.extract_many(patterns, overlapping=True))
        .explode("surname", empty_as_null=False)
        .join(surnames.lazy(), on="surname")
        .filter(
            (initials.str.len_chars() <= 1)
            | email.str.starts_with(initials)
            | ~rule_takes_rest
            & ~_is_built_in(username)
            & (
                (surname.str.len_chars() > SHORT_SURNAME)
                | is_part & ~email.str.contains(surname, literal=True)
            )
        )
        .select("username", surname=True)
        .unique()
    )
    known = pl.concat(
        users.lazy().select(name=field).explode("name").select(normalise_username(pl.col("name")))
        for field in FIELDS
    )
    without_adm = username.str.replace(_pattern(kind_names.ADMINISTRATOR_OF), "")
    second = (
        names.select("username", name=without_adm)
        .filter(pl.col("name") != pl.col("username"))
        .join(known, on="name", how="semi")
        .select("username", administrator_of=True)
    )
    return person.join(second, on="username", how="full", coalesce=True)


_last_word = pl.element().str.extract(r"([\p{L}]+)\s*$")


def _plain(name: pl.Expr, letters: Mapping[str, str]) -> pl.Expr:
    """Write a name as logins have it: without accents, and nothing between the letters."""
    return _folded(name, letters).str.replace_all(r"[^\p{L}\p{N}]", "")


def _folded(name: pl.Expr, letters: Mapping[str, str] = LETTERS) -> pl.Expr:
    """Write a name in lower case, without accents and blanks."""
    text = name.str.to_lowercase().str.replace_many(letters)
    return text.str.normalize("NFD").str.replace_all(r"[\p{Mn}\s]", "")


def host_profiles(evidence: Evidence, accounts: pl.DataFrame) -> pl.DataFrame:
    """Classify the hosts of evidence that excludes no user.

    `accounts` are rows of `account_profiles` for its users. Rows of `host_profiles`, sorted by hostname and
    host_id: hosts with logons.
    """
    of_name = pl.col("username").cast(evidence.days.collect_schema()["username"])
    kinds_of_names = accounts.lazy().select(of_name, "kind")
    active_days = (
        evidence.days.join(kinds_of_names.filter(_IS_USER), on="username", how="semi")
        .group_by("subject")
        .agg(active_days=pl.col("day").n_unique().cast(pl.Int64))
    )
    short = normalise_hostname(pl.col("hostname"), short=True)
    hosts = evidence.subjects.lazy().with_columns(short=short)
    logons = (
        evidence.days.group_by("subject", "username")
        .agg(pl.sum("events"), days=pl.len().cast(pl.Int64))
        .join(kinds_of_names, on="username")
        .join(hosts.select("subject", "short"), on="subject")
    )
    users, computers = pl.col("users"), pl.col("other_computers")
    has_majority = exceeds_threshold(evidence.rules.share_threshold_percent)
    alike = pl.col("entropy") >= EVEN
    often = pl.col("user_days") >= OFTEN * users * pl.col("active_days")
    has_lasting_user = has_majority & pl.col("primary_is_person") & (pl.col("leader_days") >= OWN_DAYS)
    nobodys = ~has_lasting_user.fill_null(value=False)
    server_name = _fits(short, kind_names.SERVER) & ~_fits(short, kind_names.WORKSTATION)
    only_services = (pl.col("people") == 0) & (pl.col("services") > 0)
    by_name = "The name is one for {}, and the host has no lasting primary user."
    many = _counted(users, "user")
    shared = pl.format("None of {} accounts has more than the threshold; excluded ones count, too.", users)
    from_computers = pl.format("Accounts of {} log on.", _counted(computers, "other computer"))
    rules: list[_Rule] = [
        ("collector", nobodys & _fits(short, kind_names.COLLECTOR), by_name.format("collectors")),
        ("server", nobodys & server_name, by_name.format("servers")),
        (
            "collector",
            (users >= COLLECTED_USERS) & alike & often,
            pl.format("{} log on, all of them alike and most days.", many),
        ),
        ("server", computers >= OTHER_COMPUTERS, from_computers),
        ("server", only_services, "Services log on, and at most administrators besides."),
        ("kiosk", nobodys & _fits(short, kind_names.KIOSK), by_name.format("kiosks and labs")),
        ("kiosk", (users >= MANY_USERS) & alike, pl.format("{} log on, all of them alike.", many)),
        ("shared", (users > 1) & ~has_majority, shared),
        ("personal", users == 1, "One user logs on."),
        ("personal", (users > 1) & has_majority, "One of several users has more than the threshold."),
    ]
    return (
        hosts.join(_who_logs_on(logons), on="subject")
        .join(active_days, on="subject", how="left")
        .with_columns(pl.col("active_days", "leader_days", "weight").fill_null(0))
        .with_columns(*_kind_and_reasons(rules))
        .select(*polars_schema(HostProfiles))
        .sort("hostname", "host_id", nulls_last=True)
        .collect(engine="streaming")
    )


def _who_logs_on(logons: pl.LazyFrame) -> pl.LazyFrame:
    """Summarise who logs on to each host, and how its users share it: a row for each subject."""
    kind, own = pl.col("kind"), pl.col("username").cast(pl.String) == pl.col("short") + "$"
    events, days = (pl.col(name).filter(_IS_USER) for name in ("events", "days"))
    users, part = _IS_USER.sum().cast(pl.Int64), events / events.sum()
    return (
        logons.sort("subject", "events", "username", descending=[False, True, False])
        .group_by("subject", maintain_order=True)
        .agg(
            # Exact counts, whatever the metric.
            weight=events.first(),
            total_weight=events.sum(),
            users=users,
            leader_days=days.first(),
            primary_is_person=kind.filter(_IS_USER).first() != "administrator",
            user_days=days.sum(),
            # Shannon's, divided by its maximum: 0 for one user, 1 where all have as many events.
            entropy=pl.when(users > 1).then(-(part * part.log()).sum() / users.log()).otherwise(0.0),
            services=(kind == "service").sum(),
            people=kind.is_in(["person", "unknown"]).sum(),
            other_computers=((kind == "computer") & ~own).sum(),
        )
    )


def _fits(name: pl.Expr, forms: Forms) -> pl.Expr:
    return name.str.contains(_pattern(forms))


def _pattern(forms: Forms) -> str:
    return "|".join(form.replace("WORD", f"({words.replace(', ', '|')})") for form, words in forms.items())


def _kind_and_reasons(rules: Sequence[_Rule]) -> tuple[pl.Expr, pl.Expr]:
    kind = first_that_holds((name, holds) for name, holds, _ in rules).fill_null("unknown")
    reasons = pl.concat_list(
        pl.when(holds & (kind == name)).then(pl.lit(reason) if isinstance(reason, str) else reason)
        for name, holds, reason in rules
    )
    return kind.alias("kind"), reasons.list.drop_nulls().alias("reasons")


def _counted(number: pl.Expr, noun: str) -> pl.Expr:
    return pl.format("{} {}", number, pl.when(number == 1).then(pl.lit(noun)).otherwise(pl.lit(f"{noun}s")))
