"""The assets of the evidence with a search service that gives what a test says."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from random import Random
from threading import Event

import dagster as dg
import polars as pl
import pytest

from assets_defs.evidence import _fetch, logon_assets, require_evidence, shares_asset
from assets_defs.record import failure_message
from assets_defs.run import resource_keys, scan_resources
from assets_defs.run_request import RANGE_END, RANGE_START, today_of
from ownership.windows import Window
from resources.errors import ServiceError
from resources.search.asking import COUNTED_APART
from resources.search.source import Logs
from resources.store.files import write_file
from resources.store.tables import Tables
from tests.assets_defs.scans import scan
from tests.pipelines.in_memory import LogFile
from tests.resources.samples import instance

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_catalogue")]

DAYS = [date(2025, 6, number) for number in range(1, 6)]


class Search(LogFile):
    """Holds events of (host, user) by day, of which those of some days lack the user; fails at a day."""

    user_setting = "column who"

    def __init__(self, events, fails_at=None, lacking=()):
        self.events, self.fails_at, self.lacking = dict(events), fails_at, lacking
        self.asked, self.counted, self.fails_to_count = [], [], False

    @property
    def logons_of(self):
        return {(day, *who): n for day, events in self.events.items() for who, n in events.items()}

    def matching_by_day(self, days):
        if self.fails_to_count:
            raise ServiceError("The search service counts no days")
        self.counted.append(list(days))
        return {day: sum(self.events.get(day, {}).values()) for day in days}

    def logons(self, days):
        for day in days:
            if day == self.fails_at:
                raise ServiceError("The search service is gone")
            self.asked.append(day)
            (found,) = super().logons([day])
            lacks = {"lacking_user": found.matching, "counts": found.counts.clear()}
            yield replace(found, **lacks) if day in self.lacking else found


def sources_of(search, settings):
    """The instance and its sources by index: `search` is the only one, or holds several."""
    if isinstance(search, dict):
        return an_instance(**settings, logs=[{"index": name} for name in search]), search
    small = an_instance(**settings)
    return small, {small.index: search}


@pytest.fixture
def fetch(tmp_path):
    """Materializes logon_counts and logon_days over a range of days."""

    def fetched(search, days=DAYS, *, refetch=False, lookback_days=None, **settings):
        """Go on to the shares where `lookback_days` is given."""
        small, sources = sources_of(search, settings)
        keys = resource_keys(small)
        given = dg.ResourceDefinition.hardcoded_resource(lambda: Logs(small, lambda one: sources[one.index]))
        further = [shares_asset(small)] if lookback_days else []
        options = {"refetch": refetch, "lookback_days": lookback_days or len(days)}
        return dg.materialize(
            [logon_assets(small), *further],
            resources={**scan_resources(small, Tables(tmp_path, small.slug)), keys.search: given},
            run_config={"resources": {keys.scan: {"config": options}}},
            tags={RANGE_START: str(days[0]), RANGE_END: str(days[-1])},
            raise_on_error=False,
        )

    return fetched


@pytest.fixture
def fetch_days(tables):
    """Fetches days as a step of Dagster's does, where only what is stored is asked for."""

    def fetched(search, days=DAYS, *, refetch=False, **settings):
        small, sources = sources_of(search, settings)
        run = scan(tables, small, Window(days[0], days[-1]), days_named=days)
        options = run.options.model_copy(update={"refetch": refetch})
        logs = Logs(small, lambda one: sources[one.index])
        _fetch(replace(run, options=options, search=lambda: logs), days)

    return fetched


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path, "small")


def an_instance(**settings):
    long_ago = {"keep": {"evidence_days": 36_500}, "scan": {"first_day": "2020-01-01"}}
    return instance(**{"name": "Small", **long_ago, **settings})


def stored(tables, run_id="none"):
    """The events of each day as published, or as a run sees them that keeps its days to itself."""
    frame = tables.logon_counts(Window(DAYS[0], DAYS[-1]), run_id=run_id).collect()
    return dict(frame.group_by("day").agg(pl.sum("events")).iter_rows())


def message(result):
    (failure,) = result.get_step_failure_events()
    return failure_message(failure.step_failure_data.error)


def events(number):
    return {("pc-1", "ann"): number}


def test_what_was_fetched_before_a_failure_is_kept_and_the_next_run_goes_on_from_there(fetch, tables):
    search = Search({day: events(3) for day in DAYS}, fails_at=DAYS[3])
    result = fetch(search)
    assert message(result) == "The search service is gone"
    assert stored(tables) == dict.fromkeys(DAYS[:3], 3)

    search.fails_at, search.asked = None, []
    assert fetch(search).success
    assert search.asked == DAYS[3:]
    assert stored(tables) == dict.fromkeys(DAYS, 3)


def test_dagster_has_each_day_of_both_tables_with_its_numbers(fetch):
    """Also days of the window before those that the run names, and a day that has no logon."""
    search = Search({day: events(3) for day in DAYS[1:]})
    recorded = fetch(search, DAYS[3:], lookback_days=len(DAYS)).get_asset_materialization_events()
    found = {"logon_counts": {}, "logon_days": {}, "host_user_shares": {}}
    for one in (event.materialization for event in recorded):
        numbers = [one.metadata.get(name) for name in ("dagster/partition_row_count", "events", "matching")]
        found[one.asset_key.path[-1]][one.partition] = [number and number.value for number in numbers]
    with_logons = {str(day): [1, 3, 3] for day in DAYS[1:]}
    assert found["logon_counts"] == {str(DAYS[0]): [0, 0, 0], **with_logons}
    assert found["logon_days"] == {str(DAYS[0]): [1, 0, 0], **with_logons}


def test_counts_are_kept_while_no_event_carries_the_fields_of_new_settings(fetch, tables):
    before = {day: events(3) for day in DAYS}
    assert fetch(Search(before)).success
    after = {day: events(4) for day in DAYS[1:]}
    told = message(fetch(Search(after, lacking=DAYS), user_field="who"))
    assert told.startswith("column who: none of the 16 logon events from 2025-06-01 to 2025-06-05 has it")
    assert stored(tables) == dict.fromkeys(DAYS, 3)
    assert fetch(Search(after, lacking=DAYS[:3]), user_field="who").success
    assert stored(tables) == dict.fromkeys(DAYS[3:], 4)


@pytest.mark.parametrize(("days", "decides"), [(2, True), (3, False)])
def test_nothing_is_decided_when_more_than_half_of_the_events_lack_a_field(fetch, days, decides):
    search = Search({day: events(3) for day in DAYS[1:]}, lacking=DAYS[1 : 1 + days])
    result = fetch(search, lookback_days=5)
    assert result.success == decides
    if not decides:
        said = "column who: 9 of the 12 logon events from 2025-06-01 to 2025-06-05 lack it"
        assert message(result).startswith(said)
        assert "nothing is decided" in message(result)


@pytest.mark.parametrize(("masked", "decides"), [(1, True), (2, False)])
def test_nothing_is_decided_when_most_names_of_a_day_are_masked(fetch, masked, decides):
    names = [f"{number:064x}" if number < masked else f"u-{number}" for number in range(3)]
    days = dict.fromkeys(DAYS, events(3)) | {DAYS[2]: {("pc-1", name): 1 for name in names}}
    result = fetch(Search(days), lookback_days=5)
    assert result.success == decides
    if not decides:
        said = message(result)
        assert said.startswith("column who: most of its names are 64 hexadecimal digits on 1 of 5 days")
        assert "field masking of the role hides the names" in said


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_settled_day_of_which_more_has_arrived_is_fetched_again_and_one_of_which_less_is_left_is_not(
    fetch, tables, dry_run
):
    search = Search({day: events(5) for day in DAYS})
    assert fetch(search).success
    assert search.counted == [], "no day is settled yet"
    search.asked, search.events = [], {day: events(number) for number, day in enumerate(DAYS, 3)}
    result = fetch(search, DAYS[4:], lookback_days=5, writes={"dry_run": dry_run})
    assert result.success
    assert (search.asked, search.counted) == (DAYS[3:], [DAYS])
    # Neither a dry run nor one that lacks steps publishes a day.
    assert stored(tables) == dict.fromkeys(DAYS, 5)
    assert stored(tables, result.run_id) == dict.fromkeys(DAYS, 5) | {DAYS[3]: 6, DAYS[4]: 7}
    search.fails_to_count = True
    assert message(fetch(search)) == "The search service counts no days"


def grown(logons, **more):
    """The logons of a day with more of some pairs: host and user by `pc_user`."""
    return dict(Counter(logons) + Counter({tuple(pair.split("_")): n for pair, n in more.items()}))


def by_pair(tables, day):
    rows = tables.logon_counts([day]).select("log", "document_hostname", "document_username", "events")
    return {(log, pc, who): events for log, pc, who, events in rows.collect().iter_rows()}


def killed(frame, path, readers):
    """As `write_file`, until the counts of a day are written."""
    write_file(frame, path, readers)
    if path.parent.name == "logon_counts":
        raise ServiceError("killed")


def test_of_a_settled_day_each_pair_keeps_the_greater_count_and_the_warning_says_of_how_many(
    fetch, tables, capfd, monkeypatch
):
    """One of two data streams is deleted, and late events of the other arrive."""
    on_pc = {("pc", "ann"): 90, ("pc", "bob"): 3}
    search = Search(dict.fromkeys(DAYS, on_pc))
    assert fetch(search).success
    capfd.readouterr()
    late = {("pc", "bob"): 3, ("laptop", "eve"): 95}
    search.events = dict.fromkeys(DAYS, on_pc) | {DAYS[0]: late, DAYS[1]: grown(on_pc, pc_bob=2)}
    assert fetch(search).success
    pairs = {("logs-*", "pc", "ann"): 90, ("logs-*", "pc", "bob"): 3, ("logs-*", "laptop", "eve"): 95}
    assert by_pair(tables, DAYS[0]) == pairs
    assert by_pair(tables, DAYS[1]) == {("logs-*", "pc", "ann"): 90, ("logs-*", "pc", "bob"): 5}
    warning = f"fewer events of 1 pairs of host and user on {DAYS[0]}: a part of it is gone"
    assert warning in capfd.readouterr().err
    search.asked, search.events = [], search.events | {DAYS[0]: grown(late, laptop_eve=1)}
    with monkeypatch.context() as patch:  # killed between the counts of a day and its row
        patch.setattr("resources.store.tables.write_file", killed)
        assert not fetch(search).success
    assert by_pair(tables, DAYS[0]) == pairs | {("logs-*", "laptop", "eve"): 96}
    search.asked = []
    assert fetch(search).success, "what was kept does not hide what arrives later"
    assert search.asked == [DAYS[0]]
    assert by_pair(tables, DAYS[0]) == pairs | {("logs-*", "laptop", "eve"): 96}
    assert fetch(search, DAYS[:1], refetch=True).success
    assert by_pair(tables, DAYS[0])[("logs-*", "pc", "bob")] == 3
    assert ("logs-*", "pc", "ann") not in by_pair(tables, DAYS[0]), "a backfill replaces"


def test_of_several_logs_each_is_counted_compared_and_judged_by_itself(fetch_days, tables):
    def logs(eve, ann):
        return {
            "win-*": Search({day: {("pc", "eve"): eve} for day in DAYS}),
            "linux-*": Search({day: {("pc", "ann"): ann} for day in DAYS}),
        }

    fetch_days(logs(5, 5))
    changed = logs(7, 3)  # late events in the one, lost ones in the other: their sum is the same
    fetch_days(changed)
    assert changed["win-*"].asked == changed["linux-*"].asked == DAYS
    assert by_pair(tables, DAYS[0]) == {("win-*", "pc", "eve"): 7, ("linux-*", "pc", "ann"): 5}
    days = tables.logon_days(DAYS[:1]).select("log", "matching", "counted").rows()
    assert days == [("linux-*", 3, 5), ("win-*", 7, 7)]
    without = logs(7, 3)
    fetch_days({"win-*": without["win-*"]})
    assert by_pair(tables, DAYS[0]) == {("win-*", "pc", "eve"): 7}, "a log that is taken out no longer counts"


@pytest.mark.parametrize(("lacking", "decides"), [(DAYS[:2], True), (DAYS[:3], False)])
def test_logs_most_of_whose_events_lack_a_field_are_refused_by_their_names(fetch, lacking, decides):
    few = Search({day: events(3) for day in DAYS}, lacking=lacking)
    result = fetch({"win-*": Search({day: events(90) for day in DAYS}), "linux-*": few}, lookback_days=5)
    assert result.success == decides
    if not decides:
        said = "logs.1 (linux-*): column who: 9 of the 15 logon events from 2025-06-01 to 2025-06-05 lack it"
        assert message(result).startswith(said)
        said = message(fetch({"win-*": few, "bsd-*": few}, lookback_days=5))
        assert said.startswith("logs.0 (win-*): column who")
        assert "; logs.1 (bsd-*): column who" in said


def test_what_is_stored_follows_the_index_and_what_it_has_lost_is_kept_whatever_happens(fetch_days, tables):
    """Random changes of the indexes of two logs against the rule in plain Python (rules 4.3, 4.4)."""
    random = Random(4)  # noqa: S311  (test data, no secret)
    days, names = DAYS[:3], ("win-*", "linux-*")
    pairs = [("pc", "ann"), ("pc", "bob"), ("ws", "ann")]
    index = {
        (name, day): Counter({pair: random.randint(0, 4) for pair in pairs}) for name in names for day in days
    }
    stored: dict[tuple[str, date], Counter[tuple[str, str]]] = {}
    matched: dict[tuple[str, date], int] = {}
    for _ in range(25):
        for key in random.sample(sorted(index), 3):
            change = random.choice(["late", "late", "lost", "gone", "back"])
            if change == "gone":
                index[key] = Counter()
            elif change == "lost":
                index[key][random.choice(pairs)] = 0
            else:
                index[key][random.choice(pairs)] += random.randint(1, 5)
        held = {name: {day: dict(+index[name, day]) for day in days} for name in names}
        fetch_days({name: Search(events_of) for name, events_of in held.items()}, days)
        for day in days:
            if any(
                (name, day) not in stored or index[name, day].total() > matched[name, day] for name in names
            ):
                for key in ((name, day) for name in names):
                    stored[key] = stored.get(key, Counter()) | index[key]
                    matched[key] = index[key].total()
            expected = {(name, *pair): n for name in names for pair, n in stored[name, day].items() if n}
            assert by_pair(tables, day) == expected


FEWER = [fewer for number in range(len(COUNTED_APART)) for fewer in combinations(COUNTED_APART, number)]


@pytest.mark.parametrize("before", FEWER)
def test_days_are_fetched_anew_by_what_is_counted_apart_and_keep_their_counts_where_the_index_is_gone(
    fetch_days, tables, before
):
    search = Search({day: events(3) for day in DAYS})
    fetch_days(search, **{f"{name}_field": name for name in before})
    search.asked, search.events = [], {day: events(4) for day in DAYS[2:]}
    fetch_days(search, **{f"{name}_field": name for name in COUNTED_APART})
    assert search.asked == DAYS
    assert stored(tables) == {**dict.fromkeys(DAYS[:2], 3), **dict.fromkeys(DAYS[2:], 4)}


def tear(tables, day):
    """Let a day's counts add up to more than its row says."""
    file = tables.folder / "logon_counts" / f"{day}.parquet"
    pl.read_parquet(file).with_columns(pl.col("events") + 1).write_parquet(file)


def test_a_day_whose_counts_do_not_add_up_is_fetched_again_where_it_is_evidence(fetch, tables):
    search = Search({day: events(3) for day in DAYS})
    for days, options in ((DAYS, {}), (DAYS[3:], {"lookback_days": 5})):
        assert fetch(search).success
        tear(tables, DAYS[1])
        search.asked = []
        result = fetch(search, days, **options)
        assert result.success
        assert search.asked == [DAYS[1]]
        assert stored(tables, result.run_id) == dict.fromkeys(DAYS, 3)


def test_a_torn_day_that_the_index_no_longer_has_fails_the_run_until_it_is_mended(fetch, tables):
    search = Search({day: events(3) for day in DAYS})
    assert fetch(search).success
    file = tables.folder / "logon_counts" / f"{DAYS[1]}.parquet"
    backup = file.read_bytes()
    tear(tables, DAYS[1])
    del search.events[DAYS[1]], search.events[DAYS[3]]
    for refetch in (False, True):
        told = message(fetch(search, refetch=refetch))
        assert told.startswith("1 days are incomplete, and the index no longer has their events")
        assert "2025-06-02" in told
        assert "2025-06-04" not in told, "its counts are whole and kept"
        assert "restore them from a backup" in told

    file.write_bytes(backup)
    assert fetch(search).success
    assert stored(tables) == dict.fromkeys(DAYS, 3)

    tear(tables, DAYS[1])
    (tables.folder / "logon_days" / f"{DAYS[1]}.parquet").unlink()
    assert fetch(search).success, "what the message says beside that"
    assert stored(tables) == {day: 3 for day in DAYS if day != DAYS[1]}


def test_a_day_that_another_run_is_replacing_is_waited_for(fetch, tables, monkeypatch):
    assert fetch(Search({day: events(3) for day in DAYS})).success
    folders = [tables.folder / table for table in ("logon_days", "logon_counts")]
    row, counts = (pl.read_parquet(folder / f"{DAYS[1]}.parquet") for folder in folders)
    amid = Event()

    def slowly(frame, path, readers):
        if path.parent.name == "logon_counts":
            amid.set()
            time.sleep(0.5)
        write_file(frame, path, readers)

    monkeypatch.setattr("resources.store.tables.write_file", slowly)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(tables.write_days, [(row, counts)])
        amid.wait()
        require_evidence(scan(tables, an_instance(), Window(DAYS[0], DAYS[-1])))


def test_days_that_come_back_empty_keep_their_counts_under_the_same_settings_only(fetch_days, tables):
    fetch_days(Search({day: events(2) for day in DAYS}))
    fetch_days(Search({DAYS[0]: events(5)}), refetch=True)
    assert stored(tables) == {**dict.fromkeys(DAYS, 2), DAYS[0]: 5}
    fetch_days(Search({DAYS[0]: events(4)}), query="event.code:4625")
    assert stored(tables) == {DAYS[0]: 4}


@pytest.mark.parametrize(
    ("settings", "days"),
    [
        ({"scan": {}}, 29),  # a run of today looks at 30 days
        ({}, 400),  # days of which are kept
        ({"keep": {"evidence_days": 90}}, 90),
        ({"keep": {"evidence_days": 20}}, 29),
        ({"scan": {"first_day": str(datetime.now(UTC).date() - timedelta(days=5))}}, 5),
    ],
)
def test_partitions_begin_with_the_first_day_that_a_run_or_the_file_names(settings, days):
    small = an_instance(**{"keep": {}, **settings})
    partitions = logon_assets(small).partitions_def
    assert partitions is not None
    assert partitions.get_first_partition_key() == str(today_of(small) - timedelta(days=days))
    assert partitions.get_last_partition_key() == str(today_of(small))
