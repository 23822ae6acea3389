"""The UI of a deployment with many instances, as a service provider uses it.

`INSTANCES` is their number (20); with 200 the code location alone takes most of a minute to load.
"""

import os

import pytest
import yaml
from playwright.sync_api import expect

from pipelines.dagster_home import dagster_home
from tests.end_to_end.webserver import SECONDS, Webserver, free_url, opened, serving, shows
from tests.resources.samples import instance_content

NUMBER = int(os.environ.get("INSTANCES", "20"))
JOBS = ("", "__apply", "__tuning", "__undo")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * SECONDS)]


def home_with(home, number):
    """Write so many instance files, as small as they get."""
    (home / "instances").mkdir()
    for one in range(number):
        content = instance_content(name=f"Customer {one:03}")
        (home / "instances" / f"{one:03}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def webserver(tmp_path_factory):
    """Dagster's webserver on a home with many instances that never ran."""
    home = home_with(tmp_path_factory.mktemp("many"), NUMBER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSET_OWNERS_HOME", str(home))
        patch.setenv("DAGSTER_HOME", str(dagster_home(home)))
        with serving(Webserver(free_url()), home, "dagster-webserver") as started:
            yield started


@pytest.fixture
def page(browser, webserver):
    with opened(browser, webserver) as context:
        yield context.new_page()


def test_each_instance_has_its_jobs_and_a_search_finds_them(page, picture):
    last = f"customer_{NUMBER - 1:03}"
    page.goto("/jobs")
    shows(page, "customer_000")
    picture(page, f"jobs_{NUMBER}")
    page.locator(".CodeMirror").click()
    page.keyboard.type(f'name:"{last}*"')
    page.keyboard.press("Enter")
    expect(page.locator("a[href*='/jobs/customer_000']")).to_have_count(0)
    for job in JOBS:
        expect(page.locator(f"a[href$='/jobs/{last}{job}']")).to_be_visible()


def test_the_lineage_shows_each_instance_as_a_folded_group(page, picture):
    page.goto("/asset-groups")
    shows(page, "customer_000__tuning")
    picture(page, f"lineage_{NUMBER}")
