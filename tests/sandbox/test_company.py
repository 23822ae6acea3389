from collections import Counter, defaultdict
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from itertools import pairwise
from statistics import median
from unicodedata import normalize
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from ownership.declaration import polars_schema, validated
from ownership.rules import Rules
from ownership.tables import LogonCounts
from ownership.windows import Window
from resources.inventory.records import host_rows, user_rows
from sandbox.company import DEMO_RULES, MAPPING, generate
from sandbox.resolution import resolve
from tests.resources.samples import instance

pytestmark = pytest.mark.slow

FRIDAY = date(2025, 11, 21)
NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
COMBINATIONS = """
    excluded_host/None/keep excluded_host/None/no_host excluded_host/None/none
    hostname_collision/None/keep hostname_collision/None/no_host hostname_collision/None/none
    majority/ambiguous_user/keep majority/ambiguous_user/no_host majority/ambiguous_user/none
    majority/matched/agree majority/matched/conflict majority/matched/no_host majority/matched/write
    majority/no_user_asset/keep majority/no_user_asset/no_host majority/no_user_asset/none
    no_hostname/None/keep no_hostname/None/none
    no_logons/None/keep no_logons/None/none
    no_majority/None/keep no_majority/None/no_host no_majority/None/none
    single_user/ambiguous_user/keep single_user/ambiguous_user/no_host single_user/ambiguous_user/none
    single_user/matched/agree single_user/matched/conflict single_user/matched/no_host
    single_user/matched/write
    single_user/no_user_asset/keep single_user/no_user_asset/no_host single_user/no_user_asset/none
    too_few_events/None/keep too_few_events/None/no_host too_few_events/None/none
"""


@pytest.fixture(scope="module")
def company():
    return generate(today=FRIDAY)


@pytest.fixture(scope="module")
def documents(company):
    return list(company.documents())


def fold(name):
    return normalize("NFC", name.lower()).strip().strip("-")


def values(field):
    return [value for value in (field if isinstance(field, list) else [field]) if value]


def instant(document):
    return datetime.fromisoformat(document["@timestamp"])


def window(days=30, timezone="UTC"):
    start = datetime.combine(FRIDAY - timedelta(days=days - 1), time(), ZoneInfo(timezone))
    end = datetime.combine(FRIDAY + timedelta(days=1), time(), ZoneInfo(timezone))
    return lambda document: start <= instant(document) < end


def default_query(document):
    event, process = document["event"], document.get("process", {})
    return (event["code"], event["outcome"], process.get("name")) == ("4624", "success", "svchost.exe")


def recount(documents):
    """Events of each user on each host, by hand: {short hostname: Counter of usernames}."""
    counts = defaultdict(Counter)
    for document in documents:
        host = fold(document["agent"].get("name", "").split(".")[0])
        for name in values(document.get("user", {}).get("name")):
            user = fold(name.rsplit("\\", 1)[-1].split("@")[0])
            if host and user and not any(fnmatchcase(user, each) for each in DEMO_RULES["exclude_users"]):
                counts[host][user] += 1
    return counts


def evidence(users):
    total = users.total()
    if total < 3:
        return "too_few_events" if total else "no_logons"
    leaders = [user for user, events in users.items() if 100 * events > 60 * total]
    return "single_user" if len(users) == 1 else "majority" if leaders else "no_majority"


def countable(company):
    """The expectations whose evidence is a matter of counting, with the hosts' short names and owners."""
    hosts = {host["id"]: host for host in company.hosts}
    for row in company.truth:
        host = hosts.get(row.host_id, {"search_agent_name": row.hostname})
        if row.evidence not in {"no_hostname", "excluded_host", "hostname_collision"}:
            names = {fold(name.split(".")[0]) for name in values(host["search_agent_name"])}
            yield row, names, values(host.get("asset_owner"))


def candidates(company, user):
    """Ids of the user assets that the first matching field names, by hand (rules 2.1)."""
    for field in ("user_email", "directory_user_sam_account_name", "directory_user_surname"):
        if found := [
            asset["id"]
            for asset in company.users
            if user in {fold(value.split("@")[0]) for value in values(asset.get(field))}
        ]:
            return found
    return []


def outcome(company, row, users, owners):
    """What the rules say of one host, by hand: evidence, match, action, resolved owner."""
    reason = evidence(users)
    match = resolved = None
    if reason in {"single_user", "majority"}:
        found = candidates(company, users.most_common(1)[0][0])
        match = "no_user_asset" if not found else "ambiguous_user" if found[1:] else "matched"
        resolved = found[0] if match == "matched" else None
    if row.host_id is None:
        action = "no_host"
    elif resolved:
        action = "write" if not owners else "agree" if resolved in owners else "conflict"
    else:
        action = "keep" if owners else "none"
    return reason, match, action, resolved


def disagreements(company, documents):
    counted = recount(documents)
    for row, names, owners in countable(company):
        by_hand = outcome(company, row, sum((counted[name] for name in names), Counter()), owners)
        if by_hand != (row.evidence, row.match, row.action, row.resolved_owner):
            yield row, by_hand


def test_a_seed_always_gives_the_same_company(company):
    assert generate(today=FRIDAY) == company


def test_every_sensible_combination_occurs(company):
    found = {f"{row.evidence}/{row.match}/{row.action}" for row in company.truth}
    assert found == set(COMBINATIONS.split())


def test_every_asset_has_an_id_of_its_own_and_one_outcome(company):
    hosts = [host["id"] for host in company.hosts]
    users = [user["id"] for user in company.users]
    assert len(set(hosts + users)) == len(hosts) + len(users)
    assert [row.host_id for row in company.truth if row.host_id] == hosts
    unrecorded = [row.hostname for row in company.truth if not row.host_id]
    assert len(set(unrecorded)) == len(unrecorded)
    assert {row.resolved_owner for row in company.truth} - {None} <= set(users)


def test_no_weekend_looks_as_if_its_events_were_lost(company):
    events = Counter(logon.at.date() for logon in company.logons if logon.kind == "logon")
    days = [FRIDAY - timedelta(days=age) for age in range(30)]
    usual = median(events[day] for day in days)
    assert min(events[day] for day in days) > 0.12 * usual


def test_documents_come_in_order_and_hold_only_mapped_fields(documents):
    def unmapped(value, mapping):
        for name, inner in value.items():
            known = mapping.get("properties", {}).get(name)
            if known is None or isinstance(inner, dict) != ("properties" in known):
                yield name
            elif isinstance(inner, dict):
                yield from unmapped(inner, known)

    assert all(instant(one) <= instant(next_) for one, next_ in pairwise(documents))
    assert {name for document in documents for name in unmapped(document, MAPPING["mappings"])} == set()


@pytest.mark.parametrize(
    ("seed", "days", "timezone"),
    [
        (7, 30, "America/Santiago"),
        (21, 90, "Europe/Berlin"),
        (3, 7, "Asia/Kolkata"),
        (4, 1, "UTC"),
    ],
)
def test_the_truth_is_what_a_recount_of_the_documents_gives(seed, days, timezone):
    company = generate(seed, today=FRIDAY, days=days, timezone=timezone)
    documents = filter(window(days, timezone), filter(default_query, company.documents()))
    assert list(disagreements(company, documents)) == []


@pytest.mark.parametrize("kept", [default_query, window()], ids=["without the window", "without the query"])
def test_events_that_must_not_count_would_change_outcomes(company, documents, kept):
    changed = {row.evidence for row, _ in disagreements(company, filter(kept, documents))}
    assert {"no_logons", "single_user"} <= changed


def test_every_document_hostname_has_its_outcome(company, documents):
    of_assets = {
        fold(name.split(".")[0]) for host in company.hosts for name in values(host.get("search_agent_name"))
    }
    unrecorded = {row.hostname for row in company.truth if row.action == "no_host"}
    assert unrecorded.isdisjoint(of_assets)
    assert set(recount(filter(default_query, documents))) <= of_assets | unrecorded


def frame(model, rows):
    return validated(model, pl.DataFrame(rows, polars_schema(model), orient="row"))


def logon_counts(documents):
    counts = Counter(
        (instant(document).date(), document["agent"].get("name"), name)
        for document in filter(window(), filter(default_query, documents))
        for name in values(document.get("user", {}).get("name"))
    )
    return frame(
        LogonCounts,
        [(*key, events, None) for key, events in counts.items() if not {None, "", "-"} & set(key)],
    )


def test_the_rules_decide_the_truth_row_by_row(company, documents):
    rules = Rules(**DEMO_RULES)
    hosts, users = (
        rows.table([asset["id"] for asset in assets], assets).with_columns(listed_at=NOON)
        for rows, assets in ((host_rows(instance()), company.hosts), (user_rows(instance()), company.users))
    )
    decisions = resolve(
        logon_counts(documents).lazy(),
        hosts,
        users,
        rules=rules,
        user_value_field="user_email",
        window=Window(FRIDAY - timedelta(days=29), FRIDAY),
        decided_at=NOON,
        run_id="a-run",
    ).decisions
    columns = ["host_id", "hostname", "evidence", "match", "action", "resolved_owner"]
    expected = pl.DataFrame([{name: getattr(row, name) for name in columns} for row in company.truth])
    by = ["host_id", "hostname"]
    assert decisions.select(columns).sort(by).rows() == expected.sort(by).rows()
