"""The report: one page for a large inventory, made by the command line and used in a browser."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import yaml
from playwright.sync_api import Page, sync_playwright

from bench.evidence import LISTED_AT, RUN, SLUG, WINDOW, prepare
from bench.resolution import EXCLUDED, Size
from bench.results import Experiment, Figure
from bench.timing import ASSET_OWNERS, Contender, alternate, function, instance_content
from ownership.plan import plan_writes
from ownership.rules import Rules
from resources.store.tables import Tables
from sandbox.stored_run import ResolvedRun, inventory_reader, store_run

SEARCHES = ("desktop-0001234", "anna garcia1", "kim lee", "1", "nobody-has-this-name")

_SEARCH = """words => {
    const box = document.querySelector("#search");
    const began = performance.now();
    box.value = words;
    box.dispatchEvent(new Event("input"));
    document.body.offsetHeight;  // lays the page out
    return performance.now() - began;
}"""
_SORT = """() => {
    const began = performance.now();
    history.pushState(null, "", "#sort=owner");
    dispatchEvent(new Event("hashchange"));
    document.body.offsetHeight;
    return performance.now() - began;
}"""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def stored(home: Path, size: Size) -> Path:
    """Store a run over made-up evidence, which wrote each owner that it could; return the instance file."""
    file = home / "bench.yaml"
    prepare(home, rows=size.rows, hosts=size.hosts, users=size.users)
    tables = Tables(home, SLUG)
    tables.prepare()
    counts = tables.logon_counts(WINDOW, run_id=RUN)
    hosts, users = (tables.read(name).collect() for name in ("inventory_hosts", "inventory_users"))
    resolution = ResolvedRun(
        counts=counts,
        read_inventory=inventory_reader(hosts, users),
        rules=Rules(exclude_users=EXCLUDED),
        user_value_field="user_email",
        window=WINDOW,
        decided_at=LISTED_AT,
        run_id=RUN,
    )
    planned = plan_writes(
        resolution.decisions,
        hosts,
        users,
        enrich=True,
        takes=["owner", "department", "criticality"],
        run_id=RUN,
        target="bench",
        intended_at=LISTED_AT,
    )
    writes = planned.with_columns(outcome=pl.lit("written"), completed_at="intended_at")
    store_run(tables, resolution, run_id=RUN, decided_at=LISTED_AT, hosts=hosts, users=users, writes=writes)
    file.write_text(yaml.safe_dump(instance_content("UNUSED", {})), encoding="utf-8")
    return file


def use(file: str) -> Callable[[], dict[str, Any]]:
    """Open a report in a browser, search and sort its hosts."""
    program = shutil.which("chromium")
    if program is None:
        raise FileNotFoundError("no browser is installed; on Debian: apt-get install chromium")
    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 900})

    def opened() -> dict[str, Any]:
        parts = _use(page, Path(file))
        _, rows = page.locator("#list [role=status]").inner_text().replace(",", "").split(" of ")
        browser.close()
        playwright.stop()
        return {"rows": int(rows), "parts": parts}

    return opened


def _use(page: Page, file: Path) -> dict[str, float]:
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.locator("#rows tbody tr").first.wait_for()
    ready = time.perf_counter() - began
    searches = [page.evaluate(_SEARCH, words) / 1000 for words in SEARCHES]
    return {
        "first paint": page.evaluate(_PAINT) / 1000,
        "all drawn": ready,
        "first search": searches[0],
        "slowest search": max(searches),
        "sort": page.evaluate(_SORT) / 1000,
    }


def measure(home: Path, size: Size, repetitions: int) -> Experiment:
    """Make the page, and use it."""
    folder = home / f"report-{size.hosts}"
    page = (folder / "report.html").resolve()
    command = [ASSET_OWNERS, "report", "--instance", str(stored(folder, size)), "--out", str(page)]
    environment = {"ASSET_OWNERS_HOME": str(folder), "ASSET_OWNERS_TABLES": ""}
    (made,) = alternate([Contender("asset-owners report", command, environment)], repetitions)
    (used,) = alternate(
        [function("opened, searched, sorted", f"{__name__}:use", file=str(page))], repetitions
    )
    hosts = f"{size.hosts:,} hosts"

    def part(name: str, bound: float | None) -> Figure:
        tries = [sample.parts[name] for sample in used.samples]
        return Figure(6, f"{hosts}: {name}", min(tries), median(tries), "s", "≤", bound)

    return Experiment(
        f"Report: {hosts}, {size.users:,} users",
        [made, used],
        [
            Figure(6, f"{hosts}: size of the page", page.stat().st_size / 1e6, None, "MB", "≤", 15),
            part("first paint", 3),
            part("all drawn", None),
            part("first search", 0.2),
            part("slowest search", 0.2),
            part("sort", None),
            Figure(6, f"{hosts}: made by the command line", made.minimum, made.median, "s"),
        ],
        [
            "The page is opened in Chromium without a window; “all drawn” is when it can be searched.",
            f"Searches: {', '.join(SEARCHES)}; the first one prepares the texts for the others.",
        ],
    )
