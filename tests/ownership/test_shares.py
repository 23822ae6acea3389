import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership.rules import MAX_EVENTS_A_DAY, Rules, events_needed, names_owner
from ownership.shares import split_nameless
from resources.settings import MAX_LOOKBACK_DAYS
from tests import examples
from tests.ownership.builders import DAY, PEOPLE, counts, decide, host, hosts, shares_of, user, users


def test_spellings_are_kept_and_those_of_a_host_also_of_excluded_users():
    logons = counts(
        ("dc1.a", "CORP\\Alice", 1),
        ("dc1.a", "alice@corp.example", 2),
        ("dc1.a", "ALICE", 3),
        ("DC1.b", "svc", 3),
    )
    (row,) = shares_of(logons, Rules(hostname_match="short", exclude_users=("svc",))).rows(named=True)
    assert row["username_spellings"] == ["ALICE", "CORP\\Alice", "alice@corp.example"]
    assert row["hostname_spellings"] == ["DC1.b", "dc1.a"]


def test_accounts_of_one_person_are_one_user_where_the_rules_say_so_and_nobody_else_may_have_them():
    whole, cut = "christopher.montgomery", "christopher.montgome"
    logons = counts(("pc", cut, 5), ("pc", f"{whole}@corp.example", 6))
    ann, other = user("u1", email=f"{whole}@corp.example", sam=cut), user("u9", sam=whole)

    def found(*people, **rules):
        decided = decide(logons, users(*people), hosts(host("h1", "pc")), Rules(**rules))
        return decided.select("evidence", "username", "share", "resolved_owner").row(0)

    assert found(ann)[:2] == ("no_majority", whole)
    assert found(ann, unite_accounts=True) == ("single_user", whole, 1.0, "u1")
    assert found(ann, other, unite_accounts=True)[0] == "no_majority"


def test_what_has_no_name_left_lacks_the_field():
    given = counts(("ws1", "CORP\\", 2), ("ws1", "@dan", 3), ("-", "dan", 4), ("ws1", "dan", 5)).collect()
    named, lacking_user, lacking_host = split_nameless(given)
    assert (named["document_username"].to_list(), lacking_user, lacking_host) == (["dan"], 5, 4)


# How many further logons would name somebody

THRESHOLDS = st.integers(50, 99)


def on_host(own, others, rules):
    """Evidence of a host as if ann led it, by the events of each of her days and of each of the others'."""
    weights = [len(days) if rules.evidence_metric == "days" else sum(days) for days in (own, *others)]
    numbers = {"weight": weights[0], "total_weight": sum(weights), "active_days": len(own)}
    numbers |= {
        "total_events": sum(map(sum, (own, *others))),
        "user_count": len([*filter(None, (own, *others))]),
        "idle_days": 0,
    }
    return pl.DataFrame([numbers | {"hostname": "ws1", "collides": False, "primary_rank": 1}]).with_columns(
        problem=pl.lit(None, pl.String),
        excluded_by=pl.lit(None, pl.String),
        confidence=pl.lit(None, pl.Float64),
        answered_no=pl.lit(None, pl.Boolean),
        stable_days=pl.lit(None, pl.Int64),
    )


days = st.lists(st.integers(1, 40), max_size=5)


@examples(200)
@given(
    own=days,
    others=st.lists(days.filter(len), max_size=3),
    rules=st.builds(
        Rules,
        share_threshold_percent=THRESHOLDS,
        min_events=st.integers(1, 60),
        min_active_days=st.integers(1, 8),
        evidence_metric=st.sampled_from(["events", "days"]),
    ),
)
def test_exactly_so_many_events_on_further_days_are_lacking(own, others, rules):
    """Rules 1.2, 1.6, 1.7. The user with more than half is primary: evidence that names a user names ann."""
    lacking = on_host(own, others, rules).select(events_needed(rules)).item()

    def named(further):
        days = own + [1] * further
        return bool(days) and on_host(days, others, rules).select(names_owner(rules)).item()

    assert named(lacking)
    assert lacking == 0 or not named(lacking - 1)


@examples(100)
@given(st.integers(0, 10**12), st.integers(0, 10**12), THRESHOLDS)
def test_large_counts_are_exact_too(events, others, threshold):
    rules, total = Rules(share_threshold_percent=threshold), events + others
    row = pl.select(weight=events, total_weight=total, total_events=total, active_days=1)
    lacking = row.select(events_needed(rules)).item()
    enough = 100 * (events + lacking) > threshold * (events + others + lacking) or not others
    one_less = 100 * (events + lacking - 1) > threshold * (events + others + lacking - 1)
    assert enough
    assert lacking == 0 or not others or not one_less


@pytest.mark.parametrize(("more", "named"), [(0, False), (1, True)])
def test_shares_are_exact_where_days_hold_as_many_events_as_are_taken(more, named):
    """Rules 1.7: the longest window, the greatest weight."""
    weights = [1000 * MAX_LOOKBACK_DAYS * events for events in (MAX_EVENTS_A_DAY * 6 // 10, MAX_EVENTS_A_DAY)]
    evidence = on_host([1], [[1]], Rules()).with_columns(
        weight=pl.lit(weights[0] + 1000 * more), total_weight=pl.lit(weights[1])
    )
    assert evidence.select(names_owner(Rules())).item() is named


def test_what_is_lacking_is_counted_in_logons_without_a_weight():
    logons = counts(("ws1", "ann", 3, DAY, "2"), ("ws1", "ann", 3), ("ws1", "bob", 14))
    rules = Rules(logon_type_weights={"2": 10}, share_threshold_percent=75)

    def decided(more):
        rows = decide(pl.concat([logons, *more]), PEOPLE, hosts(host("h1", "ws1"), host("h2", "idle")), rules)
        return dict(rows.select("hostname", pl.struct("evidence", "events_needed")).iter_rows())

    lacking = decided([])["ws1"]["events_needed"]
    assert decided([])["idle"] == {"evidence": "no_logons", "events_needed": None}
    for further, evidence in ((lacking - 1, "no_majority"), (lacking, "majority")):
        assert decided([counts(("ws1", "ann", further, DAY, "other"))])["ws1"]["evidence"] == evidence
