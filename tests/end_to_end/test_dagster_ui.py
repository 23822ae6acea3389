"""The Dagster UI on the demo's company, as an operator uses it: started, looked at, runs launched from it.

`SCREENSHOTS=DIR` keeps what the browser saw there; else the pictures end with the tests' other files.
"""

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day

import pytest
import yaml
from playwright.sync_api import expect

from pipelines.dagster_home import dagster_home
from resources.store.tables import Tables
from sandbox.company import DEMO_RULES
from tests.end_to_end.stand import COMPANY_INDEX, TODAY, Stand
from tests.end_to_end.webserver import SECONDS, Webserver, eventually, free_url, opened, serving, shows

WINDOW = [TODAY - timedelta(days=age) for age in range(29, -1, -1)]
pytestmark = pytest.mark.timeout(3 * SECONDS)
REPOSITORY = {"repositoryLocationName": "asset-owners", "repositoryName": "__repository__"}
LOGONS = [{"path": ["demo", table]} for table in ("logon_counts", "logon_days")]
EIGHT_TABLES = (
    "logon_counts",
    "logon_days",
    "inventory_hosts",
    "inventory_users",
    "host_user_shares",
    "username_matches",
    "owner_decisions",
    "owner_writes",
)


def window_tags(first, last):
    ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return [{"key": key, "value": str(day)} for key, day in ends.items()]


@dataclass
class Dagster(Webserver):
    """Dagster's webserver and daemon on a stand."""

    stand: Stand
    tables: Tables

    def launch(self, tags, run_config):
        """Start the demo's job; return the run when it has ended."""
        location = REPOSITORY["repositoryLocationName"]
        return self.ended(self.start("demo", location, tags, run_config))

    def ended(self, run_id):
        def look():
            run = self.ask(
                """query($id: ID!) { runOrError(runId: $id) {
                     ... on Run { runId status tags { key value } } } }""",
                id=run_id,
            )
            return run if run["status"] in {"SUCCESS", "FAILURE", "CANCELED"} else None

        run = eventually(look)
        return {**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}}

    def said(self, run_id):
        """The lines that our own code wrote into the run's log."""
        log = self.ask(
            """query($id: ID!) { logsForRun(runId: $id) { ... on EventConnection {
                 events { __typename ... on MessageEvent { message } } } } }""",
            id=run_id,
        )
        return [event["message"] for event in log["events"] if event["__typename"] == "LogMessageEvent"]


@contextmanager
def served(company, open_stand, home):
    """`dagster dev` on an empty home with two instance files, as `make ui` starts it.

    On `First` the first run is tried, on `Demo` everything else: to start Dagster takes twenty seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        stand = open_stand(home, patch)
        stand.begin(company.hosts, company.users)
        patch.setenv("DAGSTER_HOME", str(dagster_home(home)))
        (home / "instances").mkdir()
        for name in ("Demo", "First"):
            instance = stand.instance(
                {"name": name, "index": COMPANY_INDEX, "rules": DEMO_RULES, "scan": {"lookback_days": 30}}
            )
            (home / "instances" / f"{name.lower()}.yaml").write_text(yaml.safe_dump(instance))
        with serving(Dagster(free_url(), stand, Tables(home, "demo")), home, "dagster", "dev") as started:
            yield started


@pytest.fixture(scope="module")
def dagster(company, open_stand, tmp_path_factory):
    """The UI that most tests here look at."""
    with served(company, open_stand, tmp_path_factory.mktemp("ui")) as started:
        yield started


def test_the_first_run_is_three_clicks_on_the_page_of_the_job(company, dagster, browser, picture):
    """Of an instance that never ran, as the job's page says; the run fetches its window itself."""
    with opened(browser, dagster) as context:
        page = context.new_page()
        page.goto("/locations/asset-owners/jobs/first")
        shows(
            page,
            "First steps",
            "docs/operations.md",
            dagster.stand.engine.url,
            "write owners",
        )
        picture(page, "job")
        page.get_by_role("button", name="Materialize all").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Latest").click()
        dialog.get_by_role("button", name="Launch 1 run").click()
        runs = "query { runsOrError { ... on Runs { results { runId jobName } } } }"
        launched, *others = eventually(lambda: dagster.ask(runs)["results"])
        assert (launched["jobName"], others) == ("first", [])
        run = dagster.ended(launched["runId"])
        assert run["status"] == "SUCCESS"
        assert run["tags"]["dagster/partition"] == str(TODAY)
        assert run["tags"]["asset_owners/kind"] == "run"
        assert run["tags"]["asset_owners/result"] == "168 written"
        to_write = {row.host_id for row in company.truth if row.action == "write"}
        assert dagster.stand.written().keys() == to_write
        page.goto("/assets/first/logon_counts?view=partitions")
        shows(page, f"Materialized ({len(WINDOW)})")
        picture(page, "partitions")


@pytest.fixture(scope="module")
def asked_for(dagster, company):
    """A backfill of logon_counts over the window, asked for on its page; the daemon looks twice a minute."""
    dagster.stand.begin(company.hosts, company.users)  # whatever the first run of the other instance wrote
    launched = dagster.ask(
        """mutation($of: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $of) {
             __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
        of={"assetSelection": LOGONS, "partitionNames": [str(day) for day in WINDOW], "tags": []},
    )
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    return launched["backfillId"]


@pytest.fixture(scope="module")
def dry_run(dagster, asked_for):  # noqa: ARG001  (asked for first: it takes its time)
    """A dry run over three days, from the launchpad."""
    options = {"resources": {"demo__scan": {"config": {"dry_run": True, "lookback_days": 3}}}}
    return dagster.launch(window_tags(WINDOW[-3], WINDOW[-1]), options)


@pytest.fixture(scope="module")
def backfill(dagster, asked_for, dry_run):  # noqa: ARG001  (they run side by side)
    """The runs that the backfill came to."""

    def look():
        found = dagster.ask(
            """query($id: String!) { partitionBackfillOrError(backfillId: $id) {
                 ... on PartitionBackfill { status runs { id } } } }""",
            id=asked_for,
        )
        return found if found["status"].startswith("COMPLETED") or "FAIL" in found["status"] else None

    found = eventually(look)
    assert found["status"] == "COMPLETED_SUCCESS"
    return [dagster.ended(run["id"]) for run in found["runs"]]


@pytest.fixture(scope="module")
def scheduled(dagster, backfill):  # noqa: ARG001  (what is settled, it leaves)
    """The run that the schedule asks for today."""
    midnight = datetime.combine(TODAY, time_of_day(), UTC).timestamp()
    tick = dagster.ask(
        """mutation($of: ScheduleSelector!, $after: Float!) {
             scheduleDryRun(selectorData: $of, timestamp: $after) { ... on DryRunInstigationTick {
               evaluationResult { runRequests { runConfigYaml tags { key value } } } } } }""",
        of={**REPOSITORY, "scheduleName": "demo"},
        after=midnight,
    )
    (request,) = tick["evaluationResult"]["runRequests"]
    return dagster.launch(request["tags"], yaml.safe_load(request["runConfigYaml"]))


def test_a_dry_run_from_the_launchpad_plans_and_changes_nothing(dagster, dry_run):
    assert dry_run["status"] == "SUCCESS"
    assert (
        dry_run["tags"].items()
        >= {
            "asset_owners/instance": "Demo",
            "asset_owners/sensor": "test-sensor",
            "asset_owners/kind": "dry_run",
            "asset_owners/window": f"{WINDOW[-3]}/{WINDOW[-1]}",
        }.items()
    )
    planned = dagster.tables.of_run("owner_writes", dry_run["runId"])
    assert planned.height > 0
    assert set(planned["outcome"]) == {"planned"}
    assert "Dry run: nothing is sent to the inventory" in dagster.said(dry_run["runId"])
    assert dagster.stand.written() == {}
    assert not dagster.tables.read("owner_decisions", run_id="none").collect().height


def test_a_backfill_over_a_range_is_one_run(dagster, backfill):
    (run,) = backfill
    assert run["status"] == "SUCCESS"
    assert run["tags"].items() >= {"asset_owners/window": f"{WINDOW[0]}/{WINDOW[-1]}"}.items()
    stored = dagster.tables.logon_days(WINDOW, run_id="none")
    assert sorted(stored["day"]) == WINDOW
    (line,) = (line for line in dagster.said(run["runId"]) if line.startswith("Logons: "))
    assert line.startswith("Logons: 30 of 30 days fetched, ")


def test_the_schedule_is_off_until_somebody_switches_it_on(dagster):
    ask = """query($of: ScheduleSelector!) { scheduleOrError(scheduleSelector: $of) { ... on Schedule {
               cronSchedule executionTimezone scheduleState { id status } } } }"""
    schedule = dagster.ask(ask, of={**REPOSITORY, "scheduleName": "demo"})
    assert schedule["scheduleState"].pop("id")
    assert schedule == {
        "cronSchedule": "0 5 * * *",
        "executionTimezone": "UTC",
        "scheduleState": {"status": "STOPPED"},
    }


def test_the_schedule_s_run_fetches_what_is_not_settled_and_writes_the_owners(dagster, company, scheduled):
    assert scheduled["status"] == "SUCCESS"
    assert (
        scheduled["tags"].items()
        >= {
            "asset_owners/kind": "run",
            "asset_owners/window": f"{WINDOW[0]}/{WINDOW[-1]}",
            "dagster/schedule_name": "demo",
        }.items()
    )
    to_write = {row.host_id for row in company.truth if row.action == "write"}
    assert dagster.stand.written().keys() == to_write
    said = dagster.said(scheduled["runId"])
    stages = [line.split(":")[0] for line in said if re.search(r"\d s$", line)]
    assert Counter(stages) == Counter(
        ["Inventory", "Inventory", "Logons", "Shares", "Matches", "Decisions", "Plan", "Writes"]
    )
    assert any(line.startswith("Logons: 3 of 30 days fetched, ") for line in said)
    assert any(line.startswith(f"Writes: {len(to_write)} written, ") for line in said)


@pytest.fixture(scope="module")
def page(browser, dagster, scheduled):  # noqa: ARG001  (what is looked at)
    """A page of the UI, after a dry run, a backfill and the schedule's run."""
    with opened(browser, dagster) as context:
        yield context.new_page()


def rendered(image):
    return image.evaluate("one => one.decode().then(() => one.naturalWidth)")


def test_the_lineage_shows_every_table_and_how_it_stands(page, picture):
    page.goto("/locations/asset-owners/asset-groups/demo/lineage")
    shows(page, *EIGHT_TABLES)
    expect(page.get_by_text("Materialized", exact=True)).to_have_count(6)
    expect(page.get_by_text("2 / 4 Passed")).to_be_visible()
    picture(page, "lineage", clip={"x": 70, "y": 110, "width": 1330, "height": 640})


ASSETS = {
    "logon_counts": ("How often a user logged on", "opensearch", "User name as the documents spell it."),
    "logon_days": ("One fetched day", "opensearch", "Documents that match the query."),
    "inventory_hosts": (
        "A host asset as the inventory listed it.",
        "rest",
        "Ids of the user assets that own",
    ),
    "inventory_users": ("A user asset as the inventory listed it.", "rest", "Department of the user."),
    "host_user_shares": ("A user's part in the logons of a host", "Polars", "Normalised user name."),
    "username_matches": (
        "A user asset that a user name",
        "Polars",
        "Field of the user asset that holds the name.",
    ),
    "owner_decisions": ("What was decided for a host, and why.", "Polars", "What the logons say."),
    "owner_writes": ("An intended write of one host asset", "rest", "What became of the write."),
}


@pytest.mark.parametrize("table", EIGHT_TABLES)
def test_an_asset_s_page_says_what_it_is_where_it_lies_and_how_to_ask_it(page, picture, table):
    page.goto(f"/assets/demo/{table}?view=overview")
    shows(page, *ASSETS[table], "asset-management", f"warehouse.demo.{table}", "DuckDB", "Parquet")
    expect(page.locator("code, pre").filter(has_text=f'FROM "demo".{table}').first).to_be_visible()
    picture(page, f"{table}_page")


SOME = re.compile(r"\d")
FOUND = {
    "logon_counts": {"days_in_run": "30", "days_fetched": "3", "days_emptied": "0"},
    "logon_days": {"dagster/partition_row_count": "1", "matching": SOME, "lacking_user": SOME},
    "inventory_hosts": {"with_owner": "65", "dagster/row_count": "321"},
    "inventory_users": {"with_department": "190", "dagster/row_count": "209"},
    "host_user_shares": {"events": "14834", "hosts": "314", "users": "204", "dagster/row_count": "624"},
    "username_matches": {"users": "204", "unmatched_users": "5", "users_by_field": "user_email"},
    "owner_decisions": {
        "funnel": "with logons 313 no_majority 38, too_few_events 15, excluded_host 12, hostname_collision 6",
        "hosts_owned_percent": "20.2",
        "hosts_to_write": "168",
        "conflicts": "16",
        "dagster/row_count": "339",
    },
    "owner_writes": {
        "result": "168 hosts written",
        "rows_of_this_run": "168",
        "outcomes": "written 168",
        "hosts_written": "168",
        "hosts_failed": "0",
        "hosts_owned_percent": "72.6",
        "first_conflicts": "and 8 more",
    },
}


@pytest.mark.parametrize("table", EIGHT_TABLES)
def test_the_latest_materialization_answers_without_a_query(page, picture, table):
    page.goto(f"/assets/demo/{table}?view=events")
    for name, value in FOUND[table].items():
        row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))
        expect(row.first).to_contain_text(value, use_inner_text=True)
    picture(page, table)


PLOTS = {
    "logon_counts": "events_by_day",
    "host_user_shares": "winning_shares",
    "owner_decisions": "funnel_plot",
}


@pytest.mark.parametrize(
    ("table", "theme"), [("owner_decisions", "Dark"), *((table, "Light") for table in PLOTS)]
)
def test_plots_are_drawn_on_light_and_dark_pages(page, picture, table, theme):
    page.evaluate("theme => localStorage.setItem('dagster-theme', JSON.stringify(theme))", theme)
    page.goto(f"/assets/demo/{table}?view=events")
    expect(page.locator("body")).to_have_class(re.compile(f"theme{theme}"))
    row = page.get_by_role("row").filter(has=page.get_by_text(PLOTS[table], exact=True))
    row.get_by_text("[Show Markdown]").click()
    assert rendered(page.get_by_role("dialog").locator("img")) > 600
    picture(page, f"{PLOTS[table]}_{theme.lower()}")


def test_numbers_are_plotted_over_time(page, picture):
    page.goto("/assets/demo/owner_decisions?view=overview")
    page.get_by_role("button", name="Plots").click()
    for name in ("hosts_owned_percent", "conflicts"):
        expect(
            page.get_by_text(name, exact=True).locator("xpath=../..").locator("canvas").first
        ).to_be_visible()
    picture(page, "numbers_over_time")


def test_the_launchpad_has_defaults_and_help_for_each_option(page, picture):
    page.goto("/locations/asset-owners/jobs/demo/playground")
    shows(page, "lookback_days: 30", "enrich: true", "dry_run: false", "No errors")
    page.get_by_text("dry_run").first.click()
    shows(
        page,
        "Look-back window: calendar days that end with the last day of the run",
        "copy the owner's department and criticality",
        "Plan only: decide and store what would be written, write nothing.",
    )
    picture(page, "launchpad")


CHECKS = {
    "logon_counts": {"search_certificate_is_verified": "The service is on this machine"},
    "logon_days": {
        "days_are_fresh": "Each day of the window was fetched",
        "documents_carry_both_fields": "On no day of the window do more than 10% of the documents lack",
        "no_gaps": "The window has logon events, and no day of it lacks them",
    },
    "inventory_hosts": {
        "host_names_are_unique": "4 host names stand for several host assets: the logons of",
        "inventory_certificate_is_verified": "The service is on this machine",
        "owners_exist": "2 hosts have an owner who is no user asset",
    },
    "inventory_users": {
        "identities_are_unique": "2 account names or addresses stand for several user assets",
        "users_have_a_department": "19 of 209 user assets have no department to copy",
    },
    "host_user_shares": {"users_are_of_one_domain": "same-named accounts of different domains"},
    "username_matches": {"most_evidence_is_matched": "user names do not"},
    "owner_decisions": {
        "conflicts_do_not_grow": "16 conflicts",
        "hosts_send_their_own_events": "blocking asset check",
    },
}


@pytest.mark.parametrize("table", CHECKS)
def test_checks_say_what_they_look_at_and_what_they_found(page, picture, table):
    page.goto(f"/assets/demo/{table}?view=checks")
    for name, text in CHECKS[table].items():
        page.get_by_text(name, exact=True).first.click()
        shows(page, text)
    picture(page, f"{table}_checks")


def test_a_check_that_failed_shows_the_first_rows(page, picture):
    page.goto("/assets/demo/inventory_hosts?view=checks&checkDetail=owners_exist")
    page.get_by_text("owners_exist", exact=True).first.click()
    shows(page, "2 hosts have an owner who is no user asset")
    page.get_by_text("[Show Markdown]").click()
    shows(page.get_by_role("dialog"), "user-9999")
    picture(page, "owners_exist")


def test_runs_are_found_by_their_tags_and_read_like_a_report(page, picture, scheduled):
    page.goto("/runs")
    shows(
        page, "asset_owners/instance: Demo", "asset_owners/sensor: test-sensor", "asset_owners/kind: dry_run"
    )
    picture(page, "runs")
    page.goto(f"/runs/{scheduled['runId']}?logs=Decisions")
    shows(page, "Decisions: 339 hosts, 168 to write, 16 conflicts, 20.2% have an owner")
    picture(page, "run")


def test_the_schedule_is_listed_and_switched_off(page, picture):
    page.goto("/automation")
    shows(page, "At 05:00 UTC")
    expect(page.get_by_role("checkbox").last).not_to_be_checked()
    picture(page, "automation")


@pytest.fixture(scope="module")
def report(dagster, scheduled, tmp_path_factory):  # noqa: ARG001  (what it reports on)
    """The page that `asset-owners report` makes of the schedule's run."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    instance = dagster.stand.home / "instances" / "demo.yaml"
    made = dagster.stand.call("report", "--instance", instance, "--out", file)
    assert made.exit_code == 0, made.output
    return file.as_uri()


READERS = {
    "report": {"viewport": {"width": 1400, "height": 1000}},
    "report_dark": {"viewport": {"width": 1400, "height": 1000}, "color_scheme": "dark"},
    "report_phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}


@pytest.mark.parametrize("reader", READERS)
def test_the_report_shows_funnel_conflicts_and_writes(browser, report, picture, reader):
    with browser.new_context(**READERS[reader]) as context:
        page = context.new_page()
        page.goto(report)
        shows(page, "Owners of hosts: Demo", "From logons to owners", "This is the first run.")
        for plot in ("funnel", "shares", "days"):
            expect(page.locator(f"#{plot}-plot svg")).to_be_visible()
        assert page.locator("#conflicts tbody tr").count() == 16
        expect(page.locator("#writes .pager")).to_contain_text("Rows 1 to 100 of 168")
        expect(page.locator(".figures")).to_contain_text("20.2% → 72.6%")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, reader)
