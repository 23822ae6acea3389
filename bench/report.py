"""The report: one page for a large inventory, made by the command line and used in a browser."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polars as pl
import yaml
from playwright.sync_api import sync_playwright

from bench.evidence import EXCLUDED, LISTED_AT, RUN, SLUG, WINDOW, Size, prepare
from bench.results import Experiment, Figure
from bench.timing import ASSET_OWNERS, Contender, alternate, function, instance_content
from ownership.plan import plan_writes
from ownership.rules import Rules
from resources.store.tables import Tables
from sandbox.stored_run import ResolvedRun, inventory_reader, store_run

SEARCHES = ("desktop-0001234", "anna hansen1", "mia lopez", "1", "nobody-has-this-name")

PARTS = {"all drawn": None, "first search": 0.2, "slowest search": 0.2}
"""What is timed on the page, and for how many seconds at most."""

_SEARCH = """words => {
    const box = document.querySelector("#search");
    const began = performance.now();
    box.value = words;
    box.dispatchEvent(new Event("input"));
    document.body.offsetHeight;  // lays the page out
    return performance.now() - began;
}"""


def stored(home: Path, size: Size) -> Path:
    """Store a run over made-up evidence, which wrote each owner that it could; return the instance file."""
    file = home / "bench.yaml"
    prepare(home, size)
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


def use(file: str) -> Callable[[], dict[str, int]]:
    """Open a report in a browser and search its hosts; count its rows, and milliseconds."""
    program = shutil.which("chromium")
    if program is None:
        raise FileNotFoundError("no browser is installed; on Debian: apt-get install chromium")
    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 900})

    def opened() -> dict[str, int]:
        began = time.perf_counter()
        page.goto(Path(file).as_uri())
        page.locator("#rows tbody tr").first.wait_for()
        ready = 1000 * (time.perf_counter() - began)
        first, *others = (page.evaluate(_SEARCH, words) for words in SEARCHES)
        spent = (ready, first, max(first, *others))
        rows = page.locator("#list [role=status]").inner_text().replace(",", "").split(" of ")[1].split()[0]
        browser.close()
        playwright.stop()
        return {"rows": int(rows)} | {f"ms: {name}": round(ms) for name, ms in zip(PARTS, spent, strict=True)}

    return opened


def measure(home: Path, size: Size, tries: int) -> Experiment:
    """Make the page, and use it."""
    folder = home / f"report-{size.hosts}"
    page = (folder / "report.html").resolve()
    command = [ASSET_OWNERS, "report", "--instance", str(stored(folder, size)), "--out", str(page)]
    environment = {"ASSET_OWNERS_HOME": str(folder), "ASSET_OWNERS_TABLES": ""}
    (made,) = alternate([Contender("asset-owners report", command, environment)], tries)
    (used,) = alternate([function("opened and searched", f"{__name__}:use", file=str(page))], tries)
    hosts = f"{size.hosts:,} hosts"
    parts = {name: [sample.counts[f"ms: {name}"] / 1000 for sample in used.samples] for name in PARTS}
    return Experiment(
        f"Report: {hosts}, {size.users:,} users",
        [made, used],
        [
            Figure(6, f"{hosts}: size of the page", page.stat().st_size / 1e6, None, "MB", 15),
            *(
                Figure(6, f"{hosts}: {name}", min(s), median(s), "s", PARTS[name])
                for name, s in parts.items()
            ),
            Figure(6, f"{hosts}: made by the command line", made.minimum, made.median, "s"),
        ],
        [
            "The page is opened in Chromium without a window; “all drawn” is when it can be searched.",
            f"Searches: {', '.join(SEARCHES)}; the first one prepares the texts for the others.",
        ],
    )
