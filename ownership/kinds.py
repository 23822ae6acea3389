"""What kind of account each user name is, and what kind of machine each host, with what led to it.

Rules are asked in their order: the first that holds gives the kind, and each of that kind that holds is a
reason. They read names as administrators give them, and what accounts do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from ownership.declaration import empty, polars_schema
from ownership.evidence import Evidence, evidence_by_day
from ownership.matching import username_matches
from ownership.names import normalise_hostname
from ownership.rules import Rules, exceeds_threshold, first_that_holds
from ownership.tables import AccountProfiles, HostProfiles

MANY_HOSTS = 10
"""Hosts from which on an account that is no user asset's is taken for a service."""

MANY_HOSTS_A_DAY = 10
"""Hosts on an average active day from which on an account is no person's at a desk."""

MANY_USERS = 10
"""Users from which on a machine that none of them leads is nobody's."""

COLLECTED_USERS = 50
"""Users from which on a host name stands for what collects the events of many machines."""

OTHER_COMPUTERS = 2
"""Accounts of other computers from which on a machine serves them."""

EVEN = 0.8
"""Normalised entropy of the users' shares from which on all of them use a machine alike."""

_BUILT_IN = (
    r"^(system|local ?system|local service|network service|anonymous logon|iusr|guest|krbtgt|default ?account"
    r"|defaultuser\d*|wdagutilityaccount|dwm-\d+|umfd-\d+|font driver host|window manager|sshd_\d+"
    r"|healthmailbox.*|systemmailbox.*|msol_.*|aad_.*|s-1-\d+(-\d+)+"
    r"|lokaler dienst|netzwerkdienst|anonymous-anmeldung|gast|système|service local|service réseau|invité"
    r"|sistema|servicio local|servicio de red|invitado|servizio locale|servizio di rete"
    r"|serviço local|serviço de rede|usługa lokalna|usługa sieciowa|lokale service|netwerkservice)$"
)
_SERVICE = (
    r"^(svc|srv|service|sa|gmsa|batch|task|job|sql|backup|scan|scanner|monitor)[-_.]"
    r"|[-_.](svc|srv|service|gmsa|batch|task|job|push)\$?$"
    r"|^(sccm|qualys|nessus|veeam|sophos|zabbix|prtg|tenable|rapid7|ansible|jenkins|splunk|backup)"
)
_MANAGED_SERVICE = r"^(svc|gmsa)[-_.].*\$$"
_ADMINISTRATOR = (
    r"^adm|^(da|t[012])[-_.]|[-_.](adm|da|t[012])$|admin$|^(administrator|administrador"
    r"|administrateur|administratör|amministratore|root)$"
)
_COLLECTOR = (
    r"^(wec|wef|collector|logstash|fluentd?|syslog|siem|log-?collector|forwarder)([-_]?\d+)?$|^wecserver"
)
_SERVER = (
    r"(^|[-_])(srv|server|sql|mssql|db|web|app|file|fs|print|exch|exchange|mail|adfs|wsus|dhcp|dns|pki|ca"
    r"|hv|esx|backup|term|ts|rds|citrix)(server)?[-_]?\d+[a-z]?$|^(srv|server|svr)[-_a-z]*\d|(^|[-_.])dc([-_.]|$)|dc\d*$"
)
_KIOSK = (
    r"(^|[-_])(kiosk|lab|class|classroom|training|reception|meeting|lobby|pos|library|info)([-_]?\d|[-_]|$)"
)


@dataclass(frozen=True)
class Kinds:
    """Rows of `account_profiles` and of `host_profiles`, made of the same logons."""

    accounts: pl.DataFrame
    hosts: pl.DataFrame

    def skipped(self, rules: Rules) -> "Kinds":
        """Those that `skip_account_kinds` and `skip_host_kinds` leave out (rules 1.8)."""
        return Kinds(
            self.accounts.filter(pl.col("kind").is_in(rules.skip_account_kinds)),
            self.hosts.filter(pl.col("kind").is_in(rules.skip_host_kinds)),
        )


NONE_SKIPPED = Kinds(empty(AccountProfiles), empty(HostProfiles))


def kinds(
    counts: pl.LazyFrame, hosts: pl.DataFrame, users: pl.DataFrame, *, rules: Rules, user_value_field: str
) -> Kinds:
    """Classify the user names and the hosts of the look-back window, those that are excluded, too."""
    everybody = replace(rules, exclude_users=(), exclude_hosts=(), primary_devices=None)
    evidence = evidence_by_day(counts, hosts, rules=everybody).collected()
    usernames = evidence.days.select(pl.col("username").cast(pl.String).unique()).collect()
    matches = username_matches(usernames, users, user_value_field=user_value_field)
    accounts = account_profiles(evidence, matches)
    return Kinds(accounts, host_profiles(evidence, accounts))


def skipped_by_kind(
    counts: pl.LazyFrame, hosts: pl.DataFrame, users: pl.DataFrame, *, rules: Rules, user_value_field: str
) -> Kinds:
    """Find the accounts and hosts that the rules leave out by their kind (rules 1.8); as `kinds`."""
    if not rules.skip_account_kinds and not rules.skip_host_kinds:
        return NONE_SKIPPED
    return kinds(counts, hosts, users, rules=rules, user_value_field=user_value_field).skipped(rules)


def account_profiles(evidence: Evidence, matches: pl.DataFrame) -> pl.DataFrame:
    """Classify the user names of evidence from which nobody is left out.

    `matches` are rows of `username_matches`. Rows of `account_profiles`, sorted by username.
    """
    assets = matches.filter("decisive").group_by("username").agg(user_assets=pl.len().cast(pl.Int64))
    name, hosts, user_assets = pl.col("username"), pl.col("hosts"), pl.col("user_assets")
    a_day, computer = pl.col("host_days") / pl.col("active_days"), name.str.ends_with("$")
    rules = [
        ("built_in", name.str.contains(_BUILT_IN), pl.lit("Windows or a Microsoft product gives this name.")),
        (
            "service",
            name.str.contains(_SERVICE) & (~computer | name.str.contains(_MANAGED_SERVICE)),
            pl.lit("The name is one that services are given."),
        ),
        ("computer", computer, pl.lit("The name ends with $, as a computer's does.")),
        (
            "administrator",
            name.str.contains(_ADMINISTRATOR),
            pl.lit("The name is one that administrators are given."),
        ),
        (
            "service",
            (user_assets == 0) & (hosts >= MANY_HOSTS),
            pl.format("No user asset has the name, and it logs on to {} hosts.", hosts),
        ),
        (
            "administrator",
            a_day >= MANY_HOSTS_A_DAY,
            pl.format("It logs on to {} hosts on an average active day.", a_day.round(1)),
        ),
        (
            "person",
            user_assets > 0,
            pl.format("The name is that of {}.", _counted(user_assets, "user asset")),
        ),
    ]
    return (
        evidence.days.group_by(name.cast(pl.String))
        .agg(
            hosts=pl.col("subject").n_unique().cast(pl.Int64),
            active_days=pl.col("day").n_unique().cast(pl.Int64),
            host_days=pl.len().cast(pl.Int64),
        )
        .join(assets.lazy(), on="username", how="left")
        .with_columns(user_assets.fill_null(0))
        .with_columns(*_kind_and_reasons(rules))
        .select(*polars_schema(AccountProfiles))
        .sort("username")
        .collect()
    )


def host_profiles(evidence: Evidence, accounts: pl.DataFrame) -> pl.DataFrame:
    """Classify the hosts of evidence from which nobody is left out.

    `accounts` are rows of `account_profiles` for its users. Rows of `host_profiles`, sorted by hostname and
    host_id: hosts with logons.
    """
    days = evidence.days.with_columns(pl.col("username").cast(pl.String))
    days = days.join(accounts.lazy().select("username", "kind"), on="username")
    of_users = days.filter(pl.col("kind").is_in(["person", "administrator", "unknown"]))
    on_hosts = days.select("subject", "username", "kind").unique()
    short = normalise_hostname(pl.col("hostname"), short=True)
    hosts = evidence.subjects.lazy().with_columns(short=short)
    share_led = exceeds_threshold(evidence.rules.share_threshold_percent, part="events", whole="total_events")
    users = pl.col("users")
    many_alike = (users >= MANY_USERS) & (pl.col("entropy") >= EVEN)
    rules = [
        ("collector", short.str.contains(_COLLECTOR), pl.lit("The name is one that collectors are given.")),
        (
            "collector",
            (users >= COLLECTED_USERS) & (pl.col("entropy") >= EVEN),
            pl.format("{} log on, all of them alike.", _counted(users, "user")),
        ),
        ("server", short.str.contains(_SERVER), pl.lit("The name is one that servers are given.")),
        (
            "server",
            pl.col("other_computers") >= OTHER_COMPUTERS,
            pl.format("Accounts of {} log on.", _counted(pl.col("other_computers"), "other computer")),
        ),
        (
            "server",
            (pl.col("people") == 0) & (pl.col("services") > 0),
            pl.lit("Services log on, and at most administrators besides."),
        ),
        ("kiosk", short.str.contains(_KIOSK), pl.lit("The name is one that kiosks and labs are given.")),
        ("kiosk", many_alike, pl.format("{} log on, all of them alike.", _counted(users, "user"))),
        (
            "shared",
            (users > 1) & ~share_led,
            pl.format("None of {} has more than the threshold.", _counted(users, "user")),
        ),
        ("personal", users == 1, pl.lit("One user logs on.")),
        ("personal", (users > 1) & share_led, pl.lit("One of several users has more than the threshold.")),
    ]
    return (
        hosts.join(_used_by(of_users), on="subject", how="left")
        .join(_served(on_hosts, hosts), on="subject")
        .with_columns(
            pl.col("users", "active_days", "leader_days", "events", "total_events").fill_null(0),
            pl.col("entropy").fill_null(0.0),
        )
        .with_columns(*_kind_and_reasons(rules))
        .select(*polars_schema(HostProfiles))
        .sort("hostname", "host_id", nulls_last=True)
        .collect()
    )


def _used_by(logons: pl.LazyFrame) -> pl.LazyFrame:
    """How the users of each host share it: of subject."""
    part = pl.col("events") / pl.col("events").sum()
    shares = (
        logons.group_by("subject", "username")
        .agg(pl.sum("events"), days=pl.len().cast(pl.Int64))
        .sort("subject", "events", "username", descending=[False, True, False])
        .group_by("subject", maintain_order=True)
        .agg(
            pl.first("events"),
            users=pl.len().cast(pl.Int64),
            leader_days=pl.first("days"),
            total_events=pl.sum("events"),
            # Shannon's, divided by its maximum: 0 for one user, 1 where all have as many events.
            entropy=pl.when(pl.len() > 1).then(-(part * part.log()).sum() / pl.len().log()).otherwise(0.0),
        )
    )
    days = logons.group_by("subject").agg(active_days=pl.col("day").n_unique().cast(pl.Int64))
    return shares.join(days, on="subject")


def _served(on_hosts: pl.LazyFrame, hosts: pl.LazyFrame) -> pl.LazyFrame:
    """How many services, people, and accounts of other computers log on to each host: of subject."""
    own = pl.col("username") == pl.col("short") + "$"
    return (
        on_hosts.join(hosts.select("subject", "short"), on="subject")
        .group_by("subject")
        .agg(
            services=(pl.col("kind") == "service").sum().cast(pl.Int64),
            people=pl.col("kind").is_in(["person", "unknown"]).sum().cast(pl.Int64),
            other_computers=((pl.col("kind") == "computer") & ~own).sum().cast(pl.Int64),
        )
    )


def _kind_and_reasons(rules: Sequence[tuple[str, pl.Expr, pl.Expr]]) -> tuple[pl.Expr, pl.Expr]:
    kind = first_that_holds((name, holds) for name, holds, _ in rules).fill_null("unknown")
    reasons = pl.concat_list(pl.when(holds & (kind == name)).then(reason) for name, holds, reason in rules)
    return kind.alias("kind"), reasons.list.drop_nulls().alias("reasons")


def _counted(number: pl.Expr, noun: str) -> pl.Expr:
    return pl.format("{} {}", number, pl.when(number == 1).then(pl.lit(noun)).otherwise(pl.lit(f"{noun}s")))
