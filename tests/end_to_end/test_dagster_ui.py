"""The Dagster UI on the demo's company, as an operator uses it: started, looked at, runs launched from it.

`SCREENSHOTS=DIR` keeps what the browser saw there; else the pictures end with the tests' other files.
"""

import json
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
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS)]
REPOSITORY = {"repositoryLocationName": "asset-owners", "repositoryName": "__repository__"}
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


@dataclass
class Dagster(Webserver):
    """Dagster's webserver and daemon on a stand."""

    stand: Stand
    tables: Tables

    def launch(self, tags, run_config):
        """Start the demo's job; return the run when it has ended."""
        location = REPOSITORY["repositoryLocationName"]
        return self.ended(self.start("demo", location, tags, run_config))

    def start_scan(self, **options):
        """Launch the demo's job over the window that ends today; return the run when it has ended."""
        tags = [{"key": "dagster/partition", "value": str(TODAY)}]
        return self.launch(tags, {"resources": {"demo__scan": {"config": options}}})

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


@contextmanager
def served(company, engine, open_stand, home):
    """`dagster dev` on an empty home with two instance files, as `make ui` starts it.

    On `First` the first run is tried, on `Demo` everything else: to start Dagster takes twenty seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        stand = open_stand(home, patch, engine)
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
def dagster(company, engine, open_stand, tmp_path_factory):
    """The UI that most tests here look at."""
    with served(company, engine, open_stand, tmp_path_factory.mktemp("ui")) as started:
        yield started


def test_the_first_run_is_three_clicks_on_the_page_of_the_job(company, dagster, browser, picture):
    """Of an instance that never ran, as the job's page says; the run fetches its window itself."""
    with opened(browser, dagster) as context:
        page = context.new_page()
        page.goto("/locations/asset-owners/jobs/first")
        shows(
            page,
            "First steps",
            "asset-owners docs operations",
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
def scheduled(dagster, company):
    """The run that the schedule asks for today."""
    dagster.stand.begin(company.hosts, company.users)  # whatever the first run of the other instance wrote
    midnight = datetime.combine(TODAY, time_of_day(), UTC).timestamp()
    tick = dagster.ask(
        """mutation($of: ScheduleSelector!, $after: Float!) {
             scheduleDryRun(selectorData: $of, timestamp: $after) { ... on DryRunInstigationTick {
               evaluationResult { runRequests { runConfigYaml tags { key value } } } } } }""",
        of={**REPOSITORY, "scheduleName": "demo"},
        after=midnight,
    )
    (request,) = tick["evaluationResult"]["runRequests"]
    run = dagster.launch(request["tags"], yaml.safe_load(request["runConfigYaml"]))
    assert run["status"] == "SUCCESS", "each page here shows what it made"
    return run


@pytest.mark.nightly
def test_the_schedule_s_run_writes_the_owners(dagster, company, scheduled):
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


@pytest.fixture(scope="module")
def page(browser, dagster, scheduled):  # noqa: ARG001  (what is looked at)
    """A page of the UI, after the schedule's run."""
    with opened(browser, dagster) as context:
        yield context.new_page()


@pytest.mark.nightly
def test_the_lineage_shows_every_table_and_how_it_stands(page, picture):
    page.goto("/locations/asset-owners/asset-groups/demo/lineage")
    shows(page, *EIGHT_TABLES)
    expect(page.get_by_text("Materialized", exact=True)).to_have_count(
        len(EIGHT_TABLES) - 1
    )  # and one has partitions
    expect(page.get_by_text("2 / 4 Passed")).to_be_visible()
    picture(page, "lineage", clip={"x": 70, "y": 110, "width": 1330, "height": 640})


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
    "report_phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}


@pytest.mark.nightly
@pytest.mark.parametrize("reader", READERS)
def test_the_report_shows_funnel_conflicts_and_writes(browser, report, picture, reader):
    with browser.new_context(**READERS[reader]) as context:
        page = context.new_page()
        page.goto(report)
        shows(page, "Owners of hosts: Demo", "From logons to owners")
        for plot in ("shares", "days"):
            expect(page.locator(f"#{plot}-plot svg")).to_be_visible()
        assert page.locator("#conflicts tbody tr").count() == 5
        expect(page.locator("#writes .more")).to_contain_text("100 of 168")
        expect(page.locator(".figures")).to_contain_text("20.2% → 72.6%")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, reader)


@pytest.mark.nightly
def test_a_failed_run_of_the_command_line_is_red_on_the_timeline_and_a_click_executes_it_again(dagster, page):
    stand, file = dagster.stand, dagster.stand.home / "instances" / "demo.yaml"
    refused = yaml.safe_load(file.read_text())
    refused["platform"]["email"] = "nobody@corp.example"
    (stand.home / "refused.yaml").write_text(yaml.safe_dump(refused))
    ran = stand.call(
        "run", "--instance", stand.home / "refused.yaml", "--as-of", TODAY, "--dry-run", "--json"
    )
    assert ran.exit_code == 1
    failed = json.loads(ran.stdout.splitlines()[-1])["run_id"]
    page.goto("/timeline")
    expect(page.locator("a[href$='/jobs/demo']")).to_be_visible()
    page.goto(f"/runs/{failed}")
    page.get_by_role("button", name="Re-execute").first.click()
    page.wait_for_url(lambda url: "/runs/" in url and failed not in url)
    assert dagster.ended(page.url.rpartition("/")[2])["status"] == "SUCCESS"


@pytest.mark.nightly
def test_a_plan_is_looked_at_carried_out_and_put_back_by_clicks(dagster, company, page, picture):
    dagster.stand.begin(company.hosts, company.users)
    before = _filled(dagster)
    planned = dagster.start_scan(dry_run=True)
    page.goto("/assets/demo/owner_writes?view=events")
    shows(page, planned["runId"], "julia.pereira@corp.example (user-0001)")
    picture(page, "plan")
    page.goto(page.get_by_role("link", name="Open the launchpad of demo__apply").first.get_attribute("href"))
    shows(page, planned["runId"])
    page.get_by_role("button", name="Launch Run").click()
    runs = """query { runsOrError(filter: {pipelineName: "demo__apply"}) {
                ... on Runs { results { runId } } } }"""
    (applied,) = eventually(lambda: dagster.ask(runs)["results"])
    assert dagster.ended(applied["runId"])["tags"]["asset_owners/result"] == "168 written"
    page.goto("/assets/demo/owner_writes?view=events")
    shows(page, "168 hosts written")
    page.goto("/locations/asset-owners/jobs/demo__undo/playground")
    page.get_by_text("run_id").click()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")  # between the quotes
    page.keyboard.type(applied["runId"][:8])
    page.get_by_role("button", name="Launch Run").click()
    (undone,) = eventually(lambda: dagster.ask(runs.replace("apply", "undo"))["results"])
    assert dagster.ended(undone["runId"])["tags"]["asset_owners/result"] == "168 put back"
    assert _filled(dagster) == before
    page.goto("/assets/demo/owner_writes?view=events")
    shows(page, "168 hosts put back")


def _filled(dagster):
    """The hosts with those of their fields that hold something."""
    hosts = dagster.stand.inventory.state.assets("host")
    return [{name: value for name, value in host.items() if value} for host in hosts]


@pytest.mark.nightly
def test_the_page_of_a_run_says_where_its_report_is(page, scheduled):
    page.goto(f"/runs/{scheduled['runId']}")
    page.get_by_placeholder("Filter").first.fill("owner_writes")
    file = page.get_by_text("/reports/demo.html").first.inner_text()
    page.goto(f"file://{file}")
    shows(page, "Owners of hosts: Demo")


FOUND = {
    "owner_decisions": {"funnel": "with logons 313", "hosts_to_write": "168", "conflicts": "5"},
    "owner_writes": {"result": "168 hosts put back", "report": "demo.html"},
}


@pytest.mark.nightly
@pytest.mark.parametrize("table", FOUND)
def test_the_latest_materialization_answers_without_a_query(page, picture, table):
    page.goto(f"/assets/demo/{table}?view=events")
    for name, value in FOUND[table].items():
        row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))
        expect(row.first).to_contain_text(value, use_inner_text=True)
    picture(page, table)


@pytest.mark.nightly
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
