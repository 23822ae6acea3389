"""What kind of account each user name is, and what kind of machine each host, with what led to it.

Rules are asked in their order: the first that holds gives the kind, and each of that kind that holds is a
reason. They read names as administrators give them, and what accounts do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from ownership.declaration import empty, polars_schema
from ownership.evidence import Evidence, evidence_by_day
from ownership.matching import FIELDS, username_matches
from ownership.names import normalise_hostname, normalise_username
from ownership.rules import Rules, exceeds_threshold, first_that_holds
from ownership.tables import AccountProfiles, HostProfiles

MANY_HOSTS = 20
"""Hosts that somebody leads from which on an account may be no person's: ward staff share theirs evenly."""

HOSTS_A_DAY = 2.5
"""Hosts on an average active day that it must have, too: virtual desktops are another one each day."""

OWN_DAYS = 5
"""Days with a logon from which on a machine that a person leads is his, whatever its name."""

SHORT_SURNAME = 3
"""Letters up to which a surname in a login needs the rest of the login to be the person's, too."""

MANY_USERS = 10
"""Users from which on a machine that none of them leads is nobody's."""

COLLECTED_USERS = 50
"""Users from which on a host name stands for what collects the events of many machines."""

OFTEN = 0.4
"""Part of the active days on which each of them is seen there, on average: seldom so on shared machines."""

OTHER_COMPUTERS = 2
"""Accounts of other computers from which on a machine serves them."""

EVEN = 0.8
"""Normalised entropy of the users' shares from which on all of them use a machine alike."""

_BUILT_IN = (
    r"^(system|local ?system|local service|network service|anonymous logon|iusr|guest|krbtgt|default ?account"
    r"|defaultuser\d*|wdagutilityaccount|dwm-\d+|umfd-\d+|font driver host|window manager|sshd_\d+"
    r"|healthmailbox.*|systemmailbox.*|msol_.*|aad_.*|s-1-\d+(-\d+)+|cliusr|defaultapppool|\.net v\d.*"
    r"|(mssql|sqlagent|sqltelemetry|mssqlfdlauncher|reportserver)\$.+|mssqlserver|sqlserveragent"
    r"|lokaler dienst|netzwerkdienst|anonymous-anmeldung|gast|système|service local|service réseau|invité"
    r"|sistema|servicio local|servicio de red|invitado|servizio locale|servizio di rete"
    r"|serviço local|serviço de rede|convidado|lokale service|netwerkservice"
    r"|lokal tjänst|nätverkstjänst|anonym inloggning|gäst|lokal tjeneste|netværkstjeneste|anonymt logon|gæst"
    r"|nettverkstjeneste|anonym pålogging|gjest|järjestelmä|paikallinen palvelu|verkkopalvelu|vieras"
    r"|anonyymi kirjautuminen|система|локальная служба|сетевая служба|анонимный вход|гость"
    # Lower-cased, a Turkish capital I with a dot leaves the dot behind.
    r"|sistem|yerel hi\u0307?zmet|ağ hi\u0307?zmeti\u0307?|anoni\u0307?m oturum açma|konuk|usługa lokalna"
    r"|usługa sieciowa|logowanie anonimowe|gość|místní služba|síťová služba|anonymní přihlášení|host"
    r"|σ[ύυ]στημα|τοπικ[ήη] υπηρεσ[ίι]α|υπηρεσ[ίι]α δικτ[ύυ]ου|αν[ώω]νυμη σ[ύυ]νδεση|επισκ[έε]πτης)$"  # noqa: RUF001
)
_SERVICE = (
    r"^(svc|gmsa|service|srv)[-_.]|^(svc|gmsa)[a-z]{3}|[a-z]{2}svc\d*\$?$|[-_.](svc|srv|service|services|gmsa)\$?\d*$"
    r"|^(sa|msa|batch|task|job|sql|db|scan|scanner|monitor|app|api|bot|rpa|robot|ldap|bind|ftp|sftp|web|iis"
    r"|sap|oracle|sp|print|fax|mail|smtp|sync|deploy|vpn|radius|report|reporting)[-_]"
    r"|[-_](batch|task|job|push|agent|bot|robot|sync|bind|api|app|sql|scan|scanner|monitor|deploy)\d*$"
    r"|^(ldap|ad)bind|^(sccm|mecm|scom|qualys|nessus|veeam|zabbix|prtg|tenable|rapid7|backup|noreply|spfarm)"
    r"|^(sophos|ansible|jenkins|splunk|nagios|tomcat|postgres|oracle|sharepoint|solarwinds|lansweeper|commvault"
    r"|netbackup|scanner|monitoring|backups?|deploy(ment)?|gitlab|puppet|adsync|adconnect|sqlserver)([-_.\d]|$)"
)
_MANAGED_SERVICE = r"^(svc|gmsa|msa)[-_.].*\$$|(svc|gmsa)\$$"
_ADMINISTRATOR = (
    r"^(adm|admin)([-_.\d]|$)|^admin|admin\d*$|[-_.](adm|priv|t[012]|tier[012])\d*$|[-_](da|ea|su)$|-a$"
    r"|^(su|priv|t[012]|tier[012]|da|ea|domadm)[-_]|^(t[012]|priv)\.|^a-"
    r"|^(administrator|administrador|administrateur|administratör|amministratore|root|järjestelmänvalvoja"
    r"|администратор|yönetici\u0307?|správce|διαχειριστ[ήη]ς|beheerder|rendszergazda)$"
)
_ADMINISTRATOR_OF = r"^adm[-_.]?|[-_.]?adm$"
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
_WORKSTATION = r"(^|[-_])(lt|nb|pc|ws|wks|dt|lap|laptop|desk|desktop|notebook|vdi)([-_]?\d|[-_]|$)"

_IS_USER = pl.col("kind").is_in(["person", "administrator", "unknown"])

_Rule = tuple[str, pl.Expr, str | pl.Expr]
"""A kind, when something is of it, and the reason to give."""


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
    usernames = evidence.days.select(pl.col("username").unique().cast(pl.String)).collect()
    matches = username_matches(usernames, users, user_value_field=user_value_field)
    accounts = account_profiles(evidence, matches, users)
    return Kinds(accounts, host_profiles(evidence, accounts))


def skipped_by_kind(
    counts: pl.LazyFrame, hosts: pl.DataFrame, users: pl.DataFrame, *, rules: Rules, user_value_field: str
) -> Kinds:
    """Find the accounts and hosts that the rules leave out by their kind (rules 1.8); as `kinds`."""
    if not rules.skip_account_kinds and not rules.skip_host_kinds:
        return NONE_SKIPPED
    return kinds(counts, hosts, users, rules=rules, user_value_field=user_value_field).skipped(rules)


def account_profiles(evidence: Evidence, matches: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Classify the user names of evidence from which nobody is left out.

    `matches` are rows of `username_matches`, `users` of `inventory_users`. Rows of `account_profiles`, sorted
    by username. Whoever has a user asset is no service or administrator for the name: people are called Job.
    """
    assets = matches.filter("decisive").group_by("username").agg(user_assets=pl.len().cast(pl.Int64))
    name, hosts, user_assets = pl.col("username"), pl.col("hosts"), pl.col("user_assets")
    a_day, of_person = pl.col("host_days") / pl.col("active_days"), (user_assets > 0) | pl.col("surname")
    roams = (pl.col("hosts_led") >= MANY_HOSTS) & (a_day >= HOSTS_A_DAY)
    roaming = pl.format("it logs on to {} hosts, {} on an average active day.", hosts, a_day.round(1))
    with_adm = ~of_person & pl.col("administrator_of")
    assets_text = pl.format("The name is that of {}.", _counted(user_assets, "user asset"))
    rules: list[_Rule] = [
        *((kind, holds & ~of_person, reason) for kind, holds, reason in _of_names(name)),
        ("administrator", with_adm, "The name is a user asset's with adm before or after it."),
        ("service", ~of_person & roams, pl.format("No user asset has the name, and {}", roaming)),
        ("administrator", roams, pl.format("A user asset has the name, and {}", roaming)),
        ("person", user_assets > 0, assets_text),
        ("person", pl.col("surname"), "The surname of a user asset is part of the name."),
    ]
    of_machines = name.cast(pl.String).str.contains(rf"\$$|{_BUILT_IN}")
    led = (
        evidence.days.filter(~of_machines)
        .group_by("subject", "username")
        .agg(pl.sum("events"))
        .group_by("subject")
        .agg(weight=pl.max("events"), total_weight=pl.sum("events"))
        .select("subject", led=exceeds_threshold(evidence.rules.share_threshold_percent))
    )
    return (
        evidence.days.join(led, on="subject", how="left")
        .group_by(name)
        .agg(
            hosts_led=pl.col("subject").filter("led").n_unique(),
            hosts=pl.col("subject").n_unique().cast(pl.Int64),
            active_days=pl.col("day").n_unique().cast(pl.Int64),
            host_days=pl.len().cast(pl.Int64),
        )
        .with_columns(name.cast(pl.String))
        .join(assets.lazy(), on="username", how="left")
        .join(_of_user_assets(matches, users), on="username", how="left")
        .with_columns(user_assets.fill_null(0), pl.col("surname", "administrator_of").fill_null(value=False))
        .with_columns(*_kind_and_reasons(rules))
        .select(*polars_schema(AccountProfiles))
        .sort("username")
        .collect()
    )


def _of_names(name: pl.Expr) -> list[_Rule]:
    """The rules that read a name alone."""
    computer, services = name.str.ends_with("$"), name.str.contains(_SERVICE)
    managed, administrators = name.str.contains(_MANAGED_SERVICE), name.str.contains(_ADMINISTRATOR)
    return [
        ("built_in", name.str.contains(_BUILT_IN), "Windows or a Microsoft product gives this name."),
        ("service", services & (~computer | managed), "The name is one that services are given."),
        ("computer", computer, "The name ends with $, as a computer's does."),
        ("administrator", administrators, "The name is one that administrators are given."),
    ]


def _of_user_assets(matches: pl.DataFrame, users: pl.DataFrame) -> pl.LazyFrame:
    """Which names have to do with a user asset, though they are none of its.

    username; surname: a surname is part of it, and the rest is an initial, begins the e-mail address, or is
    nothing that a rule of names takes; administrator_of: without `adm` it is a user asset's name. A short
    surname stands in many words: there, one of these has to be so, or the name has parts and it is one.
    """
    surname, username = pl.col("surname"), pl.col("username")
    names = matches.lazy().select("username").unique()
    spelled = pl.concat_list("directory_user_surname", pl.col("directory_user_surname").list.eval(_last_word))
    surnames = (
        users.lazy()
        .select(surname=spelled, email=pl.col("user_email").list.first().str.to_lowercase())
        .explode("surname")
        .with_columns(surname=pl.concat_list(_plain(surname, _LETTERS), _plain(surname, _SPELLED_OUT)))
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
        holds for each in (rest, rest.str.strip_chars("-_.")) for _, holds, _ in _of_names(each)
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
    second = (
        names.select("username", name=pl.col("username").str.replace(_ADMINISTRATOR_OF, ""))
        .filter(pl.col("name") != pl.col("username"))
        .join(known, on="name", how="semi")
        .select("username", administrator_of=True)
    )
    return person.join(second, on="username", how="full", coalesce=True)


_last_word = pl.element().str.extract(r"([\p{L}]+)\s*$")
_LETTERS = {"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"}  # noqa: RUF001  (the letter is meant)
_SPELLED_OUT = _LETTERS | {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"}


def _plain(name: pl.Expr, letters: Mapping[str, str]) -> pl.Expr:
    """A name as logins have it: without accents, and nothing between the letters."""
    text = name.str.to_lowercase().str.replace_many(letters)
    return text.str.normalize("NFD").str.replace_all(r"[^\p{L}\p{N}]", "")


def host_profiles(evidence: Evidence, accounts: pl.DataFrame) -> pl.DataFrame:
    """Classify the hosts of evidence from which nobody is left out.

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
    share_led = exceeds_threshold(evidence.rules.share_threshold_percent)
    alike = pl.col("entropy") >= EVEN
    often = pl.col("user_days") >= OFTEN * users * pl.col("active_days")
    led_for_days = share_led & pl.col("led_by_person") & (pl.col("leader_days") >= OWN_DAYS)
    nobodys = ~led_for_days.fill_null(value=False)
    server_name = short.str.contains(_SERVER) & ~short.str.contains(_WORKSTATION)
    only_services = (pl.col("people") == 0) & (pl.col("services") > 0)
    by_name = "The name is one that {} are given, and nobody leads it for days."
    many = _counted(users, "user")
    from_computers = pl.format("Accounts of {} log on.", _counted(computers, "other computer"))
    rules: list[_Rule] = [
        ("collector", nobodys & short.str.contains(_COLLECTOR), by_name.format("collectors")),
        ("server", nobodys & server_name, by_name.format("servers")),
        (
            "collector",
            (users >= COLLECTED_USERS) & alike & often,
            pl.format("{} log on, all of them alike and most days.", many),
        ),
        ("server", computers >= OTHER_COMPUTERS, from_computers),
        ("server", only_services, "Services log on, and at most administrators besides."),
        ("kiosk", nobodys & short.str.contains(_KIOSK), by_name.format("kiosks and labs")),
        ("kiosk", (users >= MANY_USERS) & alike, pl.format("{} log on, all of them alike.", many)),
        ("shared", (users > 1) & ~share_led, pl.format("None of {} has more than the threshold.", many)),
        ("personal", users == 1, "One user logs on."),
        ("personal", (users > 1) & share_led, "One of several users has more than the threshold."),
    ]
    return (
        hosts.join(_who_logs_on(logons), on="subject")
        .join(active_days, on="subject", how="left")
        .with_columns(pl.col("active_days", "leader_days", "weight").fill_null(0))
        .with_columns(*_kind_and_reasons(rules))
        .select(*polars_schema(HostProfiles))
        .sort("hostname", "host_id", nulls_last=True)
        .collect()
    )


def _who_logs_on(logons: pl.LazyFrame) -> pl.LazyFrame:
    """Who logs on to each host, and how its users share it: of subject."""
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
            led_by_person=kind.filter(_IS_USER).first() != "administrator",
            user_days=days.sum(),
            # Shannon's, divided by its maximum: 0 for one user, 1 where all have as many events.
            entropy=pl.when(users > 1).then(-(part * part.log()).sum() / users.log()).otherwise(0.0),
            services=(kind == "service").sum(),
            people=kind.is_in(["person", "unknown"]).sum(),
            other_computers=((kind == "computer") & ~own).sum(),
        )
    )


def _kind_and_reasons(rules: Sequence[_Rule]) -> tuple[pl.Expr, pl.Expr]:
    kind = first_that_holds((name, holds) for name, holds, _ in rules).fill_null("unknown")
    reasons = pl.concat_list(
        pl.when(holds & (kind == name)).then(pl.lit(reason) if isinstance(reason, str) else reason)
        for name, holds, reason in rules
    )
    return kind.alias("kind"), reasons.list.drop_nulls().alias("reasons")


def _counted(number: pl.Expr, noun: str) -> pl.Expr:
    return pl.format("{} {}", number, pl.when(number == 1).then(pl.lit(noun)).otherwise(pl.lit(f"{noun}s")))
