"""The Dagster UI on the demo's company, as an operator uses it: started and read, runs launched from it.

`SCREENSHOTS=DIR` keeps what the browser saw there; else the pictures end with the tests' other files.
"""

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day

import pytest
import yaml
from playwright.sync_api import expect

from assets_defs.asset_specs import LOCATION
from assets_defs.run_request import SINK
from pipelines.dagster_gaps.repository import REPOSITORY
from pipelines.dagster_home import dagster_home
from resources.store.tables import SNAPSHOTS
from sandbox.company import DEMO_RULES
from tests.end_to_end.stand import COMPANY_INDEX, TENANT, TODAY, Stand
from tests.end_to_end.webserver import SECONDS, Webserver, eventually, free_url, serving
from tests.resources.samples import instance_content

WINDOW = [TODAY - timedelta(days=age) for age in range(29, -1, -1)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS)]


@dataclass
class Dagster(Webserver):
    """Dagster's webserver and daemon on a stand."""

    stand: Stand

    def runs(self, job):
        """The runs of a job, as soon as there are any."""
        query = """query($job: String!) { runsOrError(filter: {pipelineName: $job}) {
                     ... on Runs { results { runId } } } }"""
        return eventually(lambda: [run["runId"] for run in self.ask(query, job=job)["results"]])

    def ended(self, run_id):
        """The tags of a run that has ended well."""

        def look():
            run = self.run(run_id)
            return run if run["status"] in {"SUCCESS", "FAILURE", "CANCELED"} else None

        run = eventually(look)
        assert run["status"] == "SUCCESS", self.ask(
            "query($id: ID!) { runOrError(runId: $id) { ... on Run { runConfigYaml eventConnection { events {"
            " ... on MessageEvent { message } } } } } }",
            id=run_id,
        )
        return {tag["key"]: tag["value"] for tag in run["tags"]}


@pytest.fixture(scope="module")
def dagster(company, engine, open_stand, tmp_path_factory):
    """`dagster dev` on an empty home with two instance files, as `make ui` starts it.

    On `First` the first run is tried, on `Demo` everything else: to start Dagster takes twenty seconds.
    """
    home = tmp_path_factory.mktemp("ui")
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
        with serving(Dagster(free_url(), stand), home, "dagster", "dev") as started:
            yield started


def opened(browser, webserver):
    """A browser's window on the UI."""
    expect.set_options(timeout=SECONDS * 1000)
    context = browser.new_context(
        viewport={"width": 1400, "height": 900}, base_url=webserver.url, timezone_id="UTC", locale="en-GB"
    )
    context.add_init_script("localStorage.setItem('dagster-nav-collapsed', 'true')")
    context.set_default_timeout(SECONDS * 1000)
    return context


def shows(place, *texts):
    for text in texts:
        expect(place.get_by_text(text).first).to_be_visible()


def to_write(company):
    return {row.host_id for row in company.truth if row.action == "write"}


def launched(dagster, page, job):
    """Launch a run of the page's job by three clicks; return its tags once it has ended."""
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Latest").click()
    dialog.get_by_role("button", name="Launch 1 run").click()
    (run_id,) = dagster.runs(job)
    tags = dagster.ended(run_id)
    assert tags["dagster/partition"] == str(TODAY)
    return tags


def test_the_first_plan_and_the_first_run_are_three_clicks_each(company, dagster, browser, picture):
    """Of an instance that never ran, as the pages of its jobs say; the runs fetch their window themselves."""
    with opened(browser, dagster) as context:
        page = context.new_page()
        page.goto("/locations/asset-owners/jobs/first__plan")
        shows(page, "writes nothing", dagster.stand.engine.url)
        tags = launched(dagster, page, "first__plan")
        assert tags["asset_owners/kind"] == "dry_run"
        assert dagster.stand.written() == {}
        page.goto("/locations/asset-owners/jobs/first")
        shows(page, "First steps", "asset-owners docs operations", dagster.stand.engine.url, "write owners")
        picture(page, "job")
        tags = launched(dagster, page, "first")
        assert tags["asset_owners/kind"] == "run"
        assert tags["asset_owners/result"] == "168 written"
        assert dagster.stand.written().keys() == to_write(company)
        page.goto("/assets/first/logon_counts?view=partitions")
        shows(page, f"Materialized ({len(WINDOW)})")
        picture(page, "partitions")


def start_scheduled(dagster, company, dry_run):
    """Start the run that the schedule asks for today; return its id and its tags once it has ended."""
    dagster.stand.begin(company.hosts, company.users)  # whatever the first run of the other instance wrote
    midnight = datetime.combine(TODAY, time_of_day(), UTC).timestamp()
    tick = dagster.ask(
        """mutation($of: ScheduleSelector!, $after: Float!) {
             scheduleDryRun(selectorData: $of, timestamp: $after) { ... on DryRunInstigationTick {
               evaluationResult { runRequests { runConfigYaml tags { key value } } } } } }""",
        of={"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, "scheduleName": "demo"},
        after=midnight,
    )
    (request,) = tick["evaluationResult"]["runRequests"]
    config = yaml.safe_load(request["runConfigYaml"])
    config["resources"]["demo__scan"]["config"]["dry_run"] = dry_run
    run_id = dagster.start("demo", LOCATION, request["tags"], config)
    tags = dagster.ended(run_id)
    assert tags["asset_owners/kind"] == ("dry_run" if dry_run else "run")
    assert tags["asset_owners/window"] == f"{WINDOW[0]}/{WINDOW[-1]}"
    assert tags["dagster/schedule_name"] == "demo"
    return run_id


@pytest.fixture(scope="module")
def scheduled(dagster, company):
    start_scheduled(dagster, company, dry_run=False)
    assert dagster.stand.written().keys() == to_write(company)


@pytest.fixture(scope="module")
def page(browser, dagster):
    """A page of the UI."""
    with opened(browser, dagster) as context:
        yield context.new_page()


@pytest.mark.nightly
@pytest.mark.usefixtures("scheduled")
def test_the_lineage_shows_every_table_and_how_it_stands(page, picture):
    page.set_viewport_size({"width": 1900, "height": 900})  # a narrower one shows the tables by name alone
    page.goto("/locations/asset-owners/asset-groups/demo/lineage")
    shows(page, "search_service", "inventory_service", "logon_counts", "logon_days", *SNAPSHOTS, SINK)
    materialized = page.get_by_text("Materialized", exact=True)
    expect(materialized).to_have_count(len(SNAPSHOTS) + 1)  # the tables of logons have partitions
    for passed in ("3 / 5 Passed", "4 / 5 Passed"):  # of inventory_hosts and of owner_decisions
        expect(page.get_by_text(passed)).to_have_count(1)
    picture(page, "lineage", clip={"x": 70, "y": 165, "width": 1830, "height": 670})
    page.set_viewport_size({"width": 1400, "height": 900})


@pytest.mark.nightly
@pytest.mark.usefixtures("scheduled")
def test_the_report_shows_coverage_conflicts_and_a_host(dagster, page, picture, tmp_path):
    file = tmp_path / "report.html"
    instance = dagster.stand.home / "instances" / "demo.yaml"
    made = dagster.stand.call("report", "--instance", instance, "--out", file)
    assert made.exit_code == 0, made.output
    page.goto(f"{file.as_uri()}#sort=status&host=lt-1190")
    shows(page, "Owners of hosts: Demo", "From logons to owners", "lt-1190 belongs to")
    expect(page.locator("#views")).to_contain_text("Conflicts 5")
    expect(page.locator("#views")).to_contain_text(re.compile(r"Writes of run \w{8} 168"))
    expect(page.locator("#cards")).to_contain_text("20.2% → 72.6%")
    picture(page, "report")
    page.set_viewport_size({"width": 1400, "height": 1300})  # so that the whole panel is seen
    picture(page.get_by_role("complementary"), "machine")
    page.set_viewport_size({"width": 1400, "height": 900})


def test_a_failed_run_of_the_command_line_is_red_on_the_timeline_and_a_click_executes_it_again(dagster, page):
    stand = dagster.stand
    refused = yaml.safe_load((stand.home / "instances" / "demo.yaml").read_text())
    refused["platform"]["email"] = "nobody@corp.example"
    file = stand.home / "refused.yaml"
    file.write_text(yaml.safe_dump(refused))
    ran = stand.call("run", "--instance", file, "--as-of", TODAY, "--dry-run", "--json")
    assert ran.exit_code == 1
    failed = json.loads(ran.stdout.splitlines()[-1])["run_id"]
    page.goto("/timeline")
    expect(page.locator("a[href$='/jobs/demo']")).to_be_visible()
    page.goto(f"/runs/{failed}")
    page.get_by_role("button", name="Re-execute").first.click()
    page.wait_for_url(lambda url: "/runs/" in url and failed not in url)
    dagster.ended(page.url.rpartition("/")[2])


def test_a_plan_is_read_applied_and_undone_by_clicks(dagster, company, page, picture):
    planned = start_scheduled(dagster, company, dry_run=True)
    before = filled(dagster)
    page.goto("/assets/demo/owner_writes?view=events")
    shows(page, planned, "has no owner yet; its primary user is")
    picture(page, "plan")
    page.goto(page.get_by_role("link", name="Open the launchpad of demo__apply").first.get_attribute("href"))
    shows(page, planned)
    page.get_by_role("button", name="Launch Run").click()
    (applied,) = dagster.runs("demo__apply")
    assert dagster.ended(applied)["asset_owners/result"] == "168 written"
    page.goto("/assets/demo/owner_writes")
    shows(page, f"168 hosts by run {applied[:8]}")
    page.goto("/assets/demo/owner_writes?view=events")
    shows(page, "168 written; this run followed")
    page.goto("/locations/asset-owners/jobs/demo__undo/playground")
    launch = page.get_by_role("button", name="Launch Run")
    expect(launch).to_be_disabled()  # it lacks the run
    page.get_by_role("button", name="Scaffold missing config").click()
    page.get_by_role("button", name="Confirm").click()
    expect(launch).to_be_enabled()  # before the page has checked the configuration, it drops what is typed
    page.locator(".CodeMirror").get_by_text("run_id").click()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")  # between the quotes
    with page.expect_response(lambda answer: f"'{applied[:8]}'" in (answer.request.post_data or "")):
        page.keyboard.insert_text(applied[:8])  # at once: of single keys some get lost where it is slow
    launch.click()
    (undone,) = dagster.runs("demo__undo")
    assert dagster.ended(undone)["asset_owners/result"] == "168 undone"
    assert filled(dagster) == before
    page.goto("/assets/demo/owner_writes")
    shows(page, f"168 undone; this run followed run {applied[:8]}")
    page.goto("/assets/demo/owner_decisions")
    shows(page, f"after run {undone[:8]} undid this plan: 0 written")


def filled(dagster):
    """The hosts with those of their fields that hold something."""
    hosts = dagster.stand.inventory.state.assets("host")
    return [{name: value for name, value in host.items() if value} for host in hosts]


@pytest.mark.nightly
@pytest.mark.usefixtures("scheduled")
def test_pages_of_tables_and_the_launchpad_answer_without_a_query(dagster, page, picture):
    inventory = dagster.stand.inventory.url
    found = {
        "/assets/demo/owner_decisions": {
            "as_of": " run ",  # before it wrote, or after it applied a plan
            "funnel": "with logons 295",
        },
        "/assets/demo/owner_writes": {"written_last": "168 hosts by run", "report": "demo.html"},
        f"/locations/{LOCATION}/resources/demo__inventory": {"place": f"{inventory}, tenant {TENANT}"},
    }
    for place, values in found.items():
        page.goto(place)  # as it opens
        for name, value in values.items():
            row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))
            expect(row.first).to_contain_text(value, use_inner_text=True)
            expect(row.first).to_be_in_viewport()
        picture(page, place.rpartition("/")[2])
    page.goto("/locations/asset-owners/jobs/demo/playground")
    shows(page, "lookback_days: 30", "enrich: true", "dry_run: false", "No errors")
    page.get_by_text("dry_run").first.click()
    shows(page, "Plan only: decide and store what would be written, write nothing.")
    picture(page, "launchpad")


@pytest.mark.nightly
def test_many_instances_are_found_by_a_search_and_folded_in_the_lineage(
    browser, picture, tmp_path, monkeypatch
):
    """As a service provider has them. `INSTANCES` is their number: 200 take most of a minute to load."""
    number = int(os.environ.get("INSTANCES", "20"))
    (tmp_path / "instances").mkdir()
    for one in range(number):
        content = instance_content(name=f"Customer {one:03}")
        (tmp_path / "instances" / f"{one:03}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(tmp_path)))
    last = f"customer_{number - 1:03}"
    with (
        serving(Webserver(free_url()), tmp_path, "dagster-webserver") as webserver,
        opened(browser, webserver) as context,
    ):
        page = context.new_page()
        page.goto("/jobs")
        shows(page, "customer_000")
        picture(page, f"jobs_{number}")
        page.locator(".CodeMirror").click()
        page.keyboard.insert_text(f'name:"{last}*"')
        page.keyboard.press("Enter")
        expect(page.locator("a[href*='/jobs/customer_000']")).to_have_count(0)
        for job in ("", "__apply", "__plan", "__tuning", "__undo"):
            expect(page.locator(f"a[href$='/jobs/{last}{job}']")).to_be_visible()
        page.goto("/asset-groups")
        shows(page, "customer_000__tuning")
        picture(page, f"lineage_{number}")
