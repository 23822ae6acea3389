"""The whole resolution in Polars against the same rules in plain Python, on random evidence."""

from collections import Counter, defaultdict
from datetime import timedelta
from fnmatch import fnmatchcase
from unicodedata import normalize

from hypothesis import given
from hypothesis import strategies as st

from ownership.matching import FIELDS
from ownership.rules import Rules
from tests import examples
from tests.ownership.builders import DAY, counts, decide, host, hosts, user, users

USERNAMES = [
    *(
        "alice",
        "ALICE",
        "CORP\\Alice",
        "alice@corp.example",
        "bob",
        "LAB\\bob",
        "svc_a",
        "CORP\\svc_b",
        "adm1",
    ),
    *("josé", "JOSE\N{COMBINING ACUTE ACCENT}", "山田", "-", "", "corp\\"),
]
HOSTNAMES = [
    *("ws1", "WS1", "ws1.a", "ws1.b", "Ws2.a", "ws2.a", "ws2", "10.0.0.1", "10.0.0.2"),
    *("kassé", "KASSE\N{COMBINING ACUTE ACCENT}.b", "-", ""),
]
VALUES = [None, "Alice@corp.example", "bob@b", "JOSÉ", "svc_b", "alice", "Bob", "CORP\\alice", "山田", ""]
days = st.integers(0, 3).map(lambda number: DAY + timedelta(days=number))


def mostly(names):
    """Half of the time one of the first two, so that logons meet on a host and a day."""
    return st.sampled_from(names[:2]) | st.sampled_from(names)


kinds = st.sampled_from(["2", "3", "10", None])
logons = st.lists(
    st.tuples(mostly(HOSTNAMES), mostly(USERNAMES), st.integers(1, 9), days, kinds),
    max_size=25,
)
people = st.lists(st.tuples(*[st.sampled_from(VALUES)] * 3), max_size=6)
names = st.lists(st.sampled_from(HOSTNAMES), max_size=3)
owners = st.sampled_from([(), (), ("u0",), ("u9",), ("u1", "u0")])
rules = st.builds(
    Rules,
    share_threshold_percent=st.integers(50, 99),
    hostname_match=st.sampled_from(["exact", "short"]),
    exclude_users=st.sampled_from([(), ("svc_*",), ("corp\\*", "adm?"), ("*é",)]),
    exclude_hosts=st.sampled_from([(), ("ws2*",), ("*.B", "10.*")]),
    min_events=st.integers(1, 6),
    min_active_days=st.sampled_from([1, 1, 2]),
    evidence_metric=st.sampled_from(["events", "days"]),
    logon_type_weights=st.sampled_from([{}, {"2": 10}, {"2": 3, "10": 7}]),
)


def plain(text):
    name = normalize("NFC", text.lower()).strip()
    return "" if name == "-" else name


def plain_user(text):
    return plain(text.rsplit("\\", 1)[-1].split("@", 1)[0])


def fits(texts, patterns):
    return any(fnmatchcase(text, plain(pattern)) for text in texts for pattern in patterns)


def expected(logons, people, assets, rules):
    """What must be decided, row by row."""

    def short(text):
        return plain(text) if text.startswith("10.") else plain(text.split(".")[0])

    key = short if rules.hostname_match == "short" else plain
    counted = defaultdict(list)
    for name, account, events, day, kind in logons:
        username = plain_user(account)
        if key(name) and username and not fits([username, plain(account)], rules.exclude_users):
            counted[key(name)].append((username, events, day, rules.logon_type_weights.get(kind, 1)))
    # What each side calls its hosts in full.
    asset_names = {plain(name) for _, names, _ in assets for name in names}
    document_names = {plain(name) for name, *_ in logons if key(name) in counted}

    subjects = [
        (host_id, [key(name) for name in names if key(name)], owned) for host_id, names, owned in assets
    ]
    listed = {name for _, names, _ in subjects for name in names}
    subjects += [(None, [name], ()) for name in counted if name not in listed]
    for host_id, names, owned in subjects:
        events, by_events, heaviest = Counter(), Counter(), defaultdict(Counter)
        for username, number, day, weight in (row for name in set(names) for row in counted[name]):
            events[username] += number
            by_events[username] += number * weight
            heaviest[username][day] = max(heaviest[username][day], weight)
        by_days = Counter({username: days.total() for username, days in heaviest.items()})
        weights = by_days if rules.evidence_metric == "days" else by_events
        ranking = [*sorted(weights, key=lambda username: (-weights[username], username)), None, None]
        leader, total, seen = ranking[0], events.total(), sorted(heaviest[ranking[0]])
        mine = [[name for name in side if key(name) in names] for side in (asset_names, document_names)]
        own = mine[0] + mine[1]
        crowds = [Counter(key(name) for name in side if name != short(name)) for side in mine]
        evidence = (
            "no_hostname" if not names
            else "excluded_host" if fits([*own, *map(short, own)], rules.exclude_hosts)
            else "hostname_collision" if any(number > 1 for crowd in crowds for number in crowd.values())
            else "no_logons" if not total
            else "too_few_events" if total < rules.min_events or len(seen) < rules.min_active_days
            else "single_user" if len(events) == 1
            else "majority" if 100 * weights[leader] > rules.share_threshold_percent * weights.total()
            else "no_majority"
        )  # fmt: skip
        named = evidence in ("single_user", "majority")
        by_field = [
            [f"u{at}" for at, values in enumerate(people) if plain_user(values[field] or "") == leader]
            for field in range(3)
        ]
        decisive = next((field for field in range(3) if by_field[field] and named), None)
        candidates = [] if decisive is None else by_field[decisive]
        owner = candidates[0] if len(candidates) == 1 else None
        match = "matched" if owner else "ambiguous_user" if candidates else "no_user_asset" if named else None
        action = (
            "no_host" if host_id is None
            else ("keep" if owned else "none") if owner is None
            else "write" if not owned
            else "agree" if owner in owned
            else "conflict"
        )  # fmt: skip
        yield {
            "hostname": names[0] if names else None, "host_id": host_id, "hostnames": [*dict.fromkeys(names)],
            "evidence": evidence, "match": match, "action": action,
            "username": leader, "events": events[leader], "total_events": total, "user_count": len(events),
            "weight": weights[leader], "total_weight": weights.total(), "active_days": len(seen) or None,
            "share": weights[leader] / weights.total() if total else None,
            "runner_up_username": ranking[1], "runner_up_events": events[ranking[1]] or None,
            "runner_up_weight": weights[ranking[1]] or None,
            "first_seen": min(seen, default=None), "last_seen": max(seen, default=None),
            "resolved_owner": owner, "matched_by": None if decisive is None else FIELDS[decisive],
            "candidate_ids": candidates, "existing_owner": ",".join(owned) or None,
        }  # fmt: skip


@examples(40)
@given(logons, people, st.lists(st.tuples(names, owners), max_size=5), rules)
def test_the_resolution_does_what_the_rules_say(logons, people, owned_names, rules):
    """Rules 1.1 to 1.7, 2.1 to 2.5."""
    assets = [(f"h{number}", names, owned) for number, (names, owned) in enumerate(owned_names)]
    decisions = decide(
        counts(*logons),
        users(*(user(f"u{number}", *values) for number, values in enumerate(people))),
        hosts(*(host(host_id, *names, owners=owned) for host_id, names, owned in assets)),
        rules,
    )
    rows = sorted(
        expected(logons, people, assets, rules),
        key=lambda row: [(row[name] is None, row[name] or "") for name in ("hostname", "host_id")],
    )
    assert decisions.height == len(rows)
    if rows:
        assert decisions.select(rows[0].keys()).rows(named=True) == rows
