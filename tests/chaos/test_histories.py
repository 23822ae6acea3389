"""Random histories of an inventory and of what we do to it; after each step the checker looks at both.

There are two homes, each with an instance of its own, and two inventories with the same host ids. Mostly one
home runs on one inventory; now and then the other home does, or the instance points to the other inventory.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from assets_defs.evidence import day_tables
from assets_defs.plans import apply_plan, plan_of_run, undo_run, write_planned
from assets_defs.record import RunRecord
from assets_defs.run import MISSING_STEPS, default_options
from assets_defs.run_request import Mode
from ownership.windows import Window, days_of
from resources.errors import AssetOwnersError, ConfigurationError, PlanRefusedError
from resources.inventory.client import AssetInventory
from resources.search.source import DayOfLogons, extraction_fingerprint
from resources.store.tables import SNAPSHOTS, Tables
from resources.writeback import workers
from resources.writeback.writer import Writer
from sandbox.inventory import InventoryService, serving
from sandbox.inventory_api import ASSETS_LIST
from tests.assets_defs.scans import LOG, scan
from tests.chaos.books import GOALS, Books, Run
from tests.chaos.mortality import KilledError, dying_at
from tests.chaos.surroundings import (
    CALM,
    HOST_NAMES,
    LASTING,
    LOCATION,
    MADE_ANEW,
    NAME,
    READ,
    TROUBLES,
    UPDATE,
    Conditions,
    Dagster,
    Surroundings,
    change,
)
from tests.end_to_end.stand import USERS
from tests.ownership.builders import counts, resolution
from tests.resources.clock import Clock
from tests.resources.inventory_world import ADMIN, TENANT
from tests.resources.samples import instance

pytestmark = pytest.mark.slow

SLUG = "small"
WINDOW = Window(date(2026, 3, 1), date(2026, 3, 4))
LOGON_DAY = WINDOW.last
EXCLUDED: Any = {"exclude_assets": {"group": ["kiosk"]}, "exclude_user_assets": {"state": ["left"]}}
HOSTS = [
    {"id": "h-1", "search_agent_name": "pc-1", "asset_owner": None, "department": "old", "criticality": ""},
    {"id": "h-2", "search_agent_name": "pc-2", "asset_owner": "", "department": None, "criticality": "low"},
    {"id": "h-3", "search_agent_name": "pc-3", "asset_owner": [], "department": "Sales", "criticality": None},
    {"id": "h-4", "search_agent_name": "pc-4", "asset_owner": "cyd", "department": "", "criticality": "low"},
    {"id": "h-5", "search_agent_name": "pc-5"},
]
HOSTS = [{**host, LOCATION: f"Hall {number}"} for number, host in enumerate(HOSTS)]

# Which of the earlier runs, the last one first. How many there are, threads decide as well, so what is drawn
# may not depend on it.
numbers = st.integers(0, 9)
host_ids = st.sampled_from([host["id"] for host in HOSTS])
seldom = st.sampled_from([0, 0, 0, 1])
names = st.sampled_from([*HOST_NAMES.values(), "pc-9"])
usernames = st.sampled_from(["ann", "bob", "cyd"])
owners = st.sampled_from(["ann", 17, "cyd", ["ann", "cyd"], None, None, None])
departments = st.sampled_from(["Sales", "Works", None])
groups = st.tuples(st.just("group"), st.sampled_from(["kiosk", "none"]))
changes_of_persons = st.sampled_from(
    [("state", "left"), ("state", "here"), ("user_email", "ann@other.example"), ("user_department", "Legal")]
)
takers = owners | st.just(MADE_ANEW)
changes = st.tuples(st.just("asset_owner"), owners) | st.tuples(st.just("department"), departments)
deaths = st.integers(0, 30)
paths = st.sampled_from([ASSETS_LIST, READ, UPDATE, UPDATE, UPDATE])
requests = st.tuples(paths, st.sampled_from([1, 1, 2, 2, 3, 4]))
brief = sorted(set(TROUBLES) - LASTING)
troubles = st.dictionaries(requests, st.sampled_from([*brief, *brief, *TROUBLES]), min_size=1, max_size=2)
visits = st.dictionaries(host_ids, takers, min_size=1, max_size=2)
conditions = st.one_of(
    st.builds(Conditions, deaths),
    st.builds(Conditions, st.none(), troubles),
    st.builds(Conditions, st.none(), troubles, st.just({}), visits),
    st.builds(Conditions, st.none(), st.just({}), visits),
    st.builds(Conditions, deaths, troubles, visits, visits),
    st.builds(Conditions, terminated_at=st.integers(0, 4)),
    st.builds(Conditions, st.none(), troubles, visits, visits, st.integers(0, 4)),
)


class Home:
    """Tables of their own, the runs on them, the plans that they stored, and the inventories they ran on."""

    def __init__(self, folder: Path, figures: Counter[str]) -> None:
        self.folder = folder
        self.tables = Tables(folder, SLUG)
        self.books = Books(self.tables, figures)
        self.plans: list[str] = []
        self.used: set[int] = set()
        self.evidence: dict[str, dict[str, str]] = {}


class Histories(RuleBasedStateMachine):
    """One history: people, runs, and what happens to them."""

    world: "World"

    def __init__(self) -> None:
        super().__init__()
        world = self.world
        self.services = world.services
        for service in self.services:
            service.state.reset([ADMIN], HOSTS, USERS, TENANT)
        self.figures = world.figures
        self.homes = [Home(world.new_folder(), world.figures) for _ in range(2)]
        self.numbers = count(1)
        self.evidence = {"pc-1": "ann", "pc-2": "bob", "pc-3": "ann", "pc-4": "ann"}
        self.look_at_logons()
        self.figures["histories"] += 1

    def teardown(self):
        """However the history went, undisturbed runs bring it to its end, and a dry run is the plan."""
        for home in self.homes:
            for inventory in sorted(home.used):
                self.bring_to_its_end(home, inventory)
            outcomes = [row["outcome"] for row in home.books.rows().values()]
            assert {"intended", "planned"}.isdisjoint(outcomes)
            for run in home.books.runs.values():
                self.figures["writes that the inventory saw"] += len(run.sent)
            self.figures.update(f"rows of owner_writes: {outcome}" for outcome in outcomes)

        for home in self.homes:
            shutil.rmtree(home.folder)

    def bring_to_its_end(self, home, inventory):
        where = {"home": home, "inventory": inventory}
        dry = self.attempt("dry", CALM, **where)
        real = self.attempt("write", CALM, **where)
        what = ["host_id", "hostname", "old_values", "new_values"]
        assert real.select(what).equals(dry.select(what)), "a dry run is the plan"
        further = self.attempt("write", CALM, **where)
        assert further.is_empty(), "a further run writes nothing"

    @initialize(readable=st.booleans(), concurrency=st.sampled_from([1, 3]))
    def set_up(self, readable, concurrency):
        self.readable = readable
        writes = {"concurrency": concurrency, "max_failed_writes": 3}
        account = {**self.world.account, "contract": {} if readable else {"read": None}}
        self.instances = [
            instance(platform={**account, "url": service.url}, writes=writes, rules=EXCLUDED)
            for service in self.services
        ]

    # What people do

    @rule(host_id=host_ids, change=changes | groups, number=seldom)
    def somebody_changes_a_host(self, host_id, change, number):
        self.services[number].state.set_field(host_id, *change)
        self.look()

    @rule()
    def somebody_clears_all_owners(self):
        """So that there is much to write once more."""
        for host in HOSTS:
            self.services[0].state.set_field(str(host["id"]), "asset_owner", None)
        self.look()

    @rule(host_id=host_ids, name=names)
    def somebody_makes_a_host_anew(self, host_id, name):
        """Or gives it another name: its id is the same."""
        state = self.services[0].state
        change(state, host_id, MADE_ANEW)
        state.set_field(host_id, NAME, name)
        self.look()

    def look(self):
        for home in self.homes:
            home.books.check()

    @rule(host=st.sampled_from([host["search_agent_name"] for host in HOSTS]), username=st.none() | usernames)
    def somebody_else_logs_on(self, host, username):
        self.evidence.pop(host, None)
        if username:
            self.evidence[host] = username
        self.look_at_logons()

    @rule(user=st.sampled_from(USERS), known=st.booleans())
    def somebody_comes_or_goes(self, user, known):
        self.somebody_changes_a_person(str(user["id"]), "user_email", user["user_email"] if known else None)

    @rule(user_id=st.sampled_from([str(user["id"]) for user in USERS]), change=changes_of_persons)
    def somebody_is_changed(self, user_id, change):
        self.somebody_changes_a_person(user_id, *change)

    def somebody_changes_a_person(self, user_id, field, value):
        for service in self.services:
            service.state.set_field(user_id, field, value)

    # What we do

    @rule(
        kind=st.sampled_from(["write", "write", "write", "dry", "partial"]),
        limit=st.none() | st.integers(0, 2),
        conditions=conditions,
        home=seldom,
        inventory=seldom,
        again=st.sampled_from(["", "", "", "later", "meanwhile"]),
    )
    def run(self, kind, limit, conditions, home, inventory, again=""):
        where = {"home": self.homes[home], "inventory": inventory}
        self.attempt(kind, conditions, limit=limit, again=again, **where)

    @rule(number=numbers, conditions=conditions, home=seldom, inventory=seldom)
    def apply(self, number, conditions, home, inventory):
        where = {"home": self.homes[home], "inventory": inventory}
        plans, runs = self.homes[home].plans, self.homes[home].books.runs
        if not plans:
            self.run("write", None, conditions, home, inventory)
            return
        plan = runs[plans[-1 - number % len(plans)]]

        def apply(scan):
            apply_plan(scan, plan.run_id, allow_writes=None)

        kind = "undo" if plan.undone_id else "apply"
        decided_by = self.homes[home].tables.decided_by(plan.run_id)  # a plan of `apply` rests on another run
        owned_by = self.owners_by_now(self.homes[home].evidence.get(decided_by, {}), inventory)
        self.attempt(kind, conditions, apply, undone_id=plan.undone_id, **where)
        for host_id, sent in [*runs.values()][-1].sent.items() if kind == "apply" else ():
            decided_otherwise = str(sent["asset_owner"][1]) != owned_by.get(host_id)
            self.figures["owners applied that are decided otherwise"] += decided_otherwise
            assert not decided_otherwise, f"{host_id}: {sent}, and not {owned_by}"

    def owners_by_now(self, evidence, inventory):
        """Whose each host is by the logons of a plan and by what the inventory says of hosts and persons."""
        state = self.services[inventory].state
        people = [state.asset(str(user["id"])) for user in USERS]
        here = [user for user in people if user.get("state") != "left" and user["user_email"]]
        owned_by = {}
        for host_id in (str(host["id"]) for host in HOSTS):
            host = state.asset(host_id)
            username = evidence.get(host["search_agent_name"])
            found = [user for user in here if user["user_email"].split("@")[0] == username]
            if host.get("group") != "kiosk" and len(found) == 1:
                owned_by[host_id] = str(found[0]["id"])
        return owned_by

    @rule(number=numbers, conditions=conditions, dry_run=st.booleans(), home=seldom, inventory=seldom)
    def undo(self, number, conditions, dry_run, home, inventory):
        where = {"home": self.homes[home], "inventory": inventory}
        wrote = self.homes[home].books.wrote()
        if not wrote:
            self.run("write", None, conditions, home, inventory)
            return
        undone_id = wrote[-1 - number % len(wrote)]

        def undo(scan):
            undo_run(scan, undone_id, allow_writes=None)

        self.attempt("dry" if dry_run else "undo", conditions, undo, undone_id=undone_id, **where)

    def attempt(self, kind, conditions, act=None, *, home, inventory, undone_id=None, limit=None, again=""):
        """One run, undisturbed or not; then the checker looks. Gives what was planned, if it came so far.

        It plans and writes, unless `act` says what else it does. A `partial` one is executed again from a
        failure: it has no tables of its own. `again`: its last step is started once more under the same id,
        `later` as a queue or a resumed run does, or `meanwhile` as where its start took too long.
        """
        service, other = self.services[inventory], self.services[1 - inventory]
        instance = self.instances[inventory]
        home.used.add(inventory)
        run_id = f"run-{next(self.numbers)}"
        surroundings = Surroundings(service.state, conditions)
        surroundings.finish_before_lists = again == "meanwhile"  # what is done after that is not promised
        begun, unconcerned = len(service.state.journal()), other.state.journal()
        partial, kind = kind == "partial", "dry" if kind == "partial" else kind
        run = Run(run_id, kind, service.state, instance.target, self.readable, surroundings, begun, undone_id)
        home.books.runs[run_id] = run
        service.hooks.faults, service.hooks.after = surroundings.before, surroundings.after
        clock = Clock()
        options = default_options(instance).model_copy(update={"dry_run": kind == "dry", "limit": limit})
        with AssetInventory(instance, clock=clock, sleep=clock.sleep) as client, ExitStack() as life:
            run_scan = scan(
                *(home.tables, instance, WINDOW, run_id),
                options=options,
                why_no_writes="dry run" if kind == "dry" else None,
                inventory=client,
                writer=lambda *parts: Writer(*parts, clock=clock, sleep=clock.sleep),
            )
            run_scan = replace(
                run_scan, record=RunRecord(home.tables, run_id, cast("Any", Dagster(surroundings)), LOG)
            )
            missing: Any = {"options": {MISSING_STEPS: ["logons"]}} if partial else {}
            known: Any = {"window": WINDOW, "rules": run_scan.instance.rules.as_rules(), **missing}
            run_scan.record.begin("run", checked_at=datetime.now(UTC), **known)
            if partial:
                run_scan = replace(run_scan, mode=Mode("dry_run", "dry run", ("logons",), plans=True))
            life.enter_context(dying_at(conditions.last_instant))
            end, failure = "came to their end", None
            try:
                if not act and not partial:
                    self.decide(run_scan, home)
                    plan_of_run(run_scan)
                surroundings.planned = True
                with self.started_twice(act or write_planned, run_scan, twice=again == "meanwhile"):
                    (act or write_planned)(run_scan)
            except KilledError:
                end = "were killed"
            except AssetOwnersError as error:
                end, failure = "failed", error
            if again == "later" and surroundings.planned:
                life.close()
                surroundings.finish()  # nor here
                with suppress(AssetOwnersError):
                    (act or write_planned)(run_scan)
        service.hooks.faults = service.hooks.after = None
        surroundings.finish()
        if conditions == CALM:
            nothing_to_do = act and isinstance(failure, ConfigurationError | PlanRefusedError)
            assert failure is None or nothing_to_do, "an undisturbed run fails"
        self.figures[f"runs that {end}"] += 1
        self.figures.update({f"befell writes: {name}": n for name, n in surroundings.befell.items()})
        assert other.state.journal() == unconcerned, "something was written elsewhere"
        home.books.end(run)
        self.look()
        if home.tables.holds("owner_writes", run_id):
            home.plans.append(run_id)
        planned = home.tables.read_own("owner_writes", run_id)
        if kind in {"write", "apply", "undo"} and end == "came to their end":
            self.check_end(run, home, planned, conditions)
        return planned

    @contextmanager
    def started_twice(self, act, scan, *, twice):
        """Somebody else does the same for the same run meanwhile; how that ends is not asked."""
        with ThreadPoolExecutor(1) as pool:
            if twice:
                pool.submit(act, scan)
            yield

    def decide(self, scan, home):
        """What the assets before the sink do, from evidence made by hand; stored unchecked, to be fast."""
        inventory = scan.inventory()
        hosts, users = inventory.hosts(), inventory.users()
        decided = {"decided_at": datetime.now(UTC), "run_id": scan.run_id}
        run = resolution(self.logons, users, hosts, scan.instance.rules.as_rules(), **decided)
        home.evidence[scan.run_id] = dict(self.evidence)
        frames = (hosts, users, run.shares, run.matches, run.decisions)
        folder = home.tables.disk / "runs" / scan.run_id
        (folder / "logon_counts").mkdir(parents=True)
        (folder / "logon_days").mkdir()
        for table, frame in zip(SNAPSHOTS, frames, strict=True):
            frame.write_parquet(folder / f"{table}.parquet")
        counted = self.logons.collect()
        day = scan.days([LOGON_DAY]).with_columns(counted=pl.lit(counted["events"].sum(), pl.Int64))
        for table, frame in {
            "logon_counts": counted.with_columns(log=pl.lit(day["log"].item())),
            "logon_days": day,
        }.items():
            frame.write_parquet(folder / table / f"{LOGON_DAY}.parquet")

    def look_at_logons(self):
        self.logons = counts(*((host, user, 5, LOGON_DAY) for host, user in self.evidence.items()))

    def check_end(self, run, home, planned, conditions):
        """A run that came to its end has a row for each planned host, and no earlier run a pending one."""
        rows = {host_id: row for (run_id, host_id), row in home.books.rows().items() if run_id == run.run_id}
        assert set(rows) == set(planned["host_id"])
        with home.tables.ledger() as ledger:
            left = {run_id for run_id, target in ledger.targets().items() if target == run.target}
        assert left <= {run.run_id}
        if conditions == CALM and run.kind == "write":
            assert {row["outcome"] for row in rows.values()} <= {"written"}


@dataclass
class World:
    """What all histories share."""

    services: list[InventoryService]
    account: dict[str, Any]
    template: Path
    figures: Counter[str]
    numbers: Iterator[int] = field(default_factory=count)

    def new_folder(self) -> Path:
        """A home with empty tables."""
        folder = self.template.with_name(f"history-{next(self.numbers)}")
        shutil.copytree(self.template, folder)
        return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory, figures, effort):
    """Two services for all histories; each of these has two new homes, and begins with the same hosts."""
    folder = tmp_path_factory.mktemp("world")
    tables = Tables(folder / "template", SLUG)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.setattr("resources.store.tables.refresh_catalogue", lambda *_, **__: None)
        patch.setattr(workers, "SECONDS_BETWEEN_QUESTIONS", 0.001)
        if effort.same_each_time:  # to validate takes a third of the time; other tests and `make chaos` do
            patch.setattr("resources.store.tables.validated", lambda _, frame: frame)
        tables.prepare()
        none = pl.DataFrame(schema={"document_hostname": str, "document_username": str, "events": int})
        fetched = [DayOfLogons(day, datetime.now(UTC), 0, 0, 0, none) for day in days_of(WINDOW)]
        tables.write_days(
            [day_tables(day, instance().index, extraction_fingerprint(instance())) for day in fetched]
        )
        password = folder / "password"
        password.write_text(ADMIN.password)
        services = [running.enter_context(serving(folder / f"state-{number}.sqlite")) for number in range(2)]
        account = {"email": ADMIN.email, "tenant_id": TENANT, "password": {"file": str(password)}}
        yield World(services, account, tables.home, figures)


def histories_of(world):
    return type("InThisWorld", (Histories,), {"world": world})


# Histories that are not left to chance: each adversity by itself, at the first write

RUN, UNDO = {"kind": "write", "limit": None}, {"number": 0, "dry_run": False}
HERE, ELSEWHERE = {"home": 0, "inventory": 0}, {"home": 0, "inventory": 1}
SECOND_HOME = {"home": 1, "inventory": 0}
NOBODY = "nobody"


@pytest.fixture(params=[True, False], ids=["hosts can be read", "hosts are listed"])
def history(request, world):
    """A history whose steps are called one by one; the checker looks after each."""
    history = histories_of(world)()
    history.set_up(readable=request.param, concurrency=1)
    yield history
    history.teardown()


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_at_a_write_and_the_next_run(history, trouble, effort):
    """`make chaos` tries each trouble with everybody, whether hosts can be read or are listed."""
    everybody = (NOBODY, "ann", None, "cyd", ["ann", "cyd"], MADE_ANEW)
    in_turn = (history.readable + [*TROUBLES].index(trouble)) % 2
    for follower in everybody[in_turn : in_turn + 1] if effort.same_each_time else everybody:
        followers = {} if follower == NOBODY else {"h-1": follower}
        troubled = Conditions(None, {(UPDATE, 1): trouble}, {}, followers)
        for name, value in {NAME: "pc-1", "department": "old", "criticality": ""}.items():
            history.services[0].state.set_field("h-1", name, value)
        history.somebody_clears_all_owners()
        history.run(conditions=troubled, **RUN, **HERE)
        history.run(conditions=CALM, **RUN, **HERE)
        history.undo(conditions=troubled, **UNDO, **HERE)


@pytest.mark.parametrize("last_instant", range(1, 26, 8))
def test_leftovers_of_another_inventory_wait_until_the_instance_points_there_again(history, last_instant):
    last_instant += 4 * (not history.readable)
    history.run(conditions=Conditions(last_instant), **RUN, **HERE)
    left = history.homes[0].books.rows()
    history.run(conditions=CALM, **RUN, **ELSEWHERE)
    now = history.homes[0].books.rows()
    assert {key: now[key] for key in left} == left
    history.run(conditions=CALM, **RUN, **HERE)


def test_somebody_sets_an_owner_or_makes_a_host_anew_after_they_were_listed(history):
    visits = {"h-1": "cyd", "h-2": MADE_ANEW}
    history.run(conditions=Conditions(visits=visits), **RUN, **HERE)
    history.run(conditions=Conditions(9, visits=visits), **RUN, **HERE)


def test_a_second_start_settles_what_the_service_did_late(history):
    late = Conditions(troubles={(UPDATE, 4): "503, done later"})
    history.somebody_clears_all_owners()
    history.run(conditions=late, again="meanwhile", **RUN, **HERE)


def test_two_homes_take_turns(history):
    history.run(conditions=Conditions(9), **RUN, **HERE)
    history.run(conditions=CALM, **RUN, **SECOND_HOME)
    history.somebody_clears_all_owners()
    history.run(conditions=CALM, **RUN, **SECOND_HOME)
    history.run(conditions=CALM, **RUN, **HERE)
    history.undo(conditions=CALM, **UNDO, **SECOND_HOME)
    assert not history.services[0].state.asset("h-1")["asset_owner"]


# Histories that are left to chance


def test_no_history_loses_or_overwrites_anything(world, effort):
    world.figures.update(dict.fromkeys(GOALS, 0))
    run_state_machine_as_test(
        histories_of(world),
        settings=settings(
            max_examples=effort.histories,
            stateful_step_count=effort.steps,
            derandomize=effort.same_each_time,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases={Phase.generate} if effort.same_each_time else set(Phase) - {Phase.explain},
            print_blob=True,
        ),
    )
