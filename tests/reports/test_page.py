import csv
import io
import json
import re
from datetime import timedelta

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME
from ownership.declaration import empty
from ownership.history import with_conflict_since
from ownership.rules import Rules
from ownership.tables import AcknowledgedConflicts, ClosestUsers
from reports import page_tables
from reports.page import report_page
from tests.ownership.builders import (
    NOW,
    PEOPLE,
    WINDOW,
    counts,
    host,
    hosts,
    plan,
    resolution,
    table,
    user,
    users,
)

DAYS = pl.DataFrame(
    {
        "day": [WINDOW.first + timedelta(days=number) for number in range(30)],
        "events": [800] * 9 + [3, None] + [800] * 19,
        "state": ["ok"] * 9 + ["gap", "not fetched"] + ["ok"] * 19,
    }
)
LOGONS = counts(
    ("pc-1", "ann", 9),
    ("pc-2", "ann", 7),
    ("pc-2", "bob", 3),
    ("pc-10", "ann", 100),
    ("pc-4", "ann", 6),
    ("pc-4", "bob", 4),
    ("pc-5", "ext.moore", 8),
    ("pc-6", "kim", 12),
)
ASSETS = hosts(
    host("h1", "pc-1", department="Support"),
    host("h2", "pc-2", owners=("u2",)),
    host("h3", "pc-10", owners=("u9",)),
    host("h4", "pc-4"),
    host("h5", "pc-5"),
    host("h6", "pc-6"),
)


def report(
    logons=LOGONS,
    people=PEOPLE,
    assets=ASSETS,
    *,
    instance="Demo",
    days=DAYS,
    message=None,
    outcome="written",
    acknowledged=None,
    closest=None,
):
    """The page after a run."""
    made = resolution(logons, people, assets)
    decisions = with_conflict_since(made.decisions, made.decisions.clear())
    writes = plan(decisions, people, assets).with_columns(
        outcome=pl.lit(outcome), message=pl.lit(message, pl.String)
    )
    if outcome != "planned":
        writes = writes.with_columns(completed_at=pl.lit(NOW))
    return report_page(
        instance=instance,
        decisions=decisions,
        window=WINDOW,
        rules=Rules(),
        shares=made.shares,
        matches=made.matches,
        hosts=assets,
        users=people,
        days=days,
        writes=writes,
        all_writes=writes.filter(pl.col("outcome") != "planned").lazy(),
        acknowledged=empty(AcknowledgedConflicts) if acknowledged is None else acknowledged,
        closest=empty(ClosestUsers) if closest is None else closest,
        how_sure=["At more than 60%, 3 owners would be written.", "Compared with <nobody>."],
        made_at=NOW,
    )


def packed(html):
    """What the page's script is given."""
    return json.loads(html.partition('id="packed">')[2].partition("</script>")[0])


def rows_of(html, name):
    """The rows of a table, cell by cell as text."""
    content = packed(html)
    table, people = content["tables"][name], content["people"]
    fields = {
        field: [values["of"][number] for number in values["at"]] if isinstance(values, dict) else values
        for field, values in table["fields"].items()
    }

    def text(style, value):
        if style == "people":
            return " ".join(f"{people.get(key, '')} {key}".strip() for key in value)
        return f"{value:.1%}" if style == "percent" else str("" if value is None else value)

    return [
        [
            " ".join(filter(None, (text(style, fields[field][row]) for style, field in parts)))
            for parts in table["columns"]
        ]
        for row in range(table["rows"])
    ]


def test_the_tables_hold_what_the_run_found():
    html = report()
    ann = "ann@corp.example u1"
    assert rows_of(html, "conflicts") == [
        ["pc-10 h3", "u9", f"{ann} ann", "100.0% 100 of 100 logons on 1 day", "2026-03-30", "2026-03-02"],
        [
            *("pc-2 h2", "bob@corp.example u2", f"{ann} ann"),
            *("70.0% 7 of 10 logons on 1 day", "2026-03-30", "2026-03-02"),
        ],
    ]
    assert rows_of(html, "unmatched") == [
        ["kim (account)", "1", "1", "12", "kim u3 kim u4", ""],
        ["ext.moore (account)", "1", "1", "8", "", ""],
    ]
    alone, several = EVIDENCE["single_user"], EVIDENCE["majority"]
    to_write, conflict = (f"{MATCH['matched']} {ACTION[action]}" for action in ("write", "conflict"))
    assert rows_of(html, "writes") == [
        ["pc-1 h1", f"written {OUTCOME['written']}", "", ann, "Support → Sales", "", "2026-03-30 12:00"]
    ]
    logons = ("ann", "70.0% 7 of 10 logons on 1 day", "2026-03-02")
    wrote = f"{alone} {to_write} {OUTCOME['written']} asset-owners wrote this owner on 2026-03-30."
    assert rows_of(html, "hosts")[:2] == [
        ["pc-1 h1", ann, wrote, "ann", "100.0% 9 of 9 logons on 1 day", "2026-03-02"],
        ["pc-2 h2", "bob@corp.example u2", f"{several} {conflict} Conflict since 2026-03-30.", *logons],
    ]
    assert rows_of(html, "hosts")[3][2].endswith(ACTION["none"]), "no sentence is cut"
    assert rows_of(html, "people")[0] == [ann, "1", "3", "4"]
    texts = " ".join(re.sub("<[^>]+>", " ", html).split())
    for said in (
        "6 host assets",
        "2 conflicts",
        "33.3% → 50.0% have an owner",
        "2026-03-01 to 2026-03-30 (30 days), 149 of them by users who count, decided",
        "2026-03-10 (3), 2026-03-11 (not fetched)",
        "At more than 60%, 3 owners would be written. Compared with &lt;nobody&gt;.",
        EVIDENCE["no_majority"],
    ):
        assert said in texts


HOSTILE = [
    "<script>pwned()</script>",
    "</script><script>pwned()</script>",
    "<img src=x onerror=pwned()>",
    '" autofocus onfocus="pwned()',
    "' onmouseover='pwned()",
    "--><svg onload=pwned()>",
    "</td></table></style></title><iframe srcdoc='<script>parent.pwned()</script>'>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:pwned()",
    "&lt;script&gt;",
    "right\u202eto\u2066left\u2029line\nbreak\x00\x1b[2J",
    "\\u003cscript>",
    "x" * 10_000,
]


def hostile_report(*names):
    """A page in which every text that comes from somewhere else is one of these."""
    logons, people, assets = [], [], []
    for name in names:
        logons += [(f"{name}1", name, 3), (f"{name}2", f"{name}other", 3), (f"{name}3", name, 3)]
        people.append(user(name, sam=name, email=f"{name}@x", user_department=name, criticality=name))
        assets += [
            host(f"{name}h1", f"{name}1", department=name),
            host(f"{name}h2", f"{name}2"),
            host(f"{name}h3", f"{name}3", owners=(f"{name}owner",)),
        ]
    text = " ".join(names)
    return report(counts(*logons), users(*people), hosts(*assets), instance=text, message=text)


def many_hosts(number):
    """So many hosts, one user each, with numbers in their names."""
    names = [f"pc-{each}" for each in range(number)]
    logons = counts(*((name, "ann", 1 + place) for place, name in enumerate(names)))
    return report(logons, PEOPLE, hosts(*(host(f"h-{name}", name) for name in names)))


def test_a_page_of_too_many_hosts_holds_the_first_and_says_so(monkeypatch):
    monkeypatch.setattr(page_tables, "MAX_ROWS", 3)
    html = report()
    assert [row[0] for row in rows_of(html, "hosts")] == ["pc-1 h1", "pc-2 h2", "pc-5 h5"]
    assert "The page holds the first 3 of" in html


def test_a_plan_is_told_as_what_would_be():
    html = report(outcome="planned")
    assert "<b>33.3% → 50.0%</b>\nwould have an owner" in html
    assert "<b>1</b> owner planned" in html
    assert rows_of(html, "hosts")[0][2].endswith(OUTCOME["planned"])


def test_a_conflict_that_somebody_acknowledged_leaves_list_and_figure_until_the_evidence_changes():
    row = {"host_id": "h2", "existing_owner": "u2", "resolved_owner": "u1", "evidence": "majority"}
    acknowledged = table(AcknowledgedConflicts, row | {"by": "kim", "acknowledged_at": NOW})
    html = report(acknowledged=acknowledged)
    assert [row[0] for row in rows_of(html, "conflicts")] == ["pc-10 h3"]
    assert "<b>1</b> conflict<" in html
    assert "Acknowledged: 1." in html
    changed = acknowledged.with_columns(evidence=pl.lit("single_user"))
    assert len(rows_of(report(acknowledged=changed), "conflicts")) == 2


def test_a_user_without_a_user_asset_may_be_one_with_a_name_like_theirs():
    rows = [
        {"username": "kim", "user_id": user_id, "score": score, "reason": "Spelled alike."}
        for user_id, score in (("u1", 0.8), ("u2", 0.9))
    ]
    found = {row[0]: row[-1] for row in rows_of(report(closest=table(ClosestUsers, *rows)), "unmatched")}
    assert found["kim (account)"].index("u2") < found["kim (account)"].index("u1")
    assert not found["ext.moore (account)"]


def test_a_page_about_nothing_says_so():
    html = report(counts(), PEOPLE, hosts(), days=DAYS.clear())
    assert "data-table=" not in html
    assert "<svg" not in html


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page in a browser and collects what it asks for and complains about: nothing, at its end."""
    contexts, complaints = [], []

    def open_page(html, **options):
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8", newline="")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.answered, page.complaints = [], complaints
        page.on("requestfinished", lambda request: page.answered.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
        page.add_init_script("window.pwned = () => alert('pwned')")
        page.set_default_timeout(20_000)
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def column(page, section, number):
    return page.locator(f"#{section} tbody tr td:nth-child({number})")


def shows(page, section, number, texts):
    """The page follows a click in its own time."""
    expect(column(page, section, number)).to_have_text(texts, use_inner_text=True)


def test_tables_are_sorted_and_searched(opened):
    page = opened(report())
    assert page.locator("#hosts").bounding_box()["y"] < page.locator("#people").bounding_box()["y"]
    names = ["pc-10\nh3", "pc-2\nh2"]
    shows(page, "conflicts", 1, names)
    head = page.locator("#conflicts th").first
    head.get_by_role("button").click()
    shows(page, "conflicts", 1, names[::-1])  # 2 comes before 10
    assert head.get_attribute("aria-sort") == "ascending"
    page.locator("#unmatched th", has_text="Logons").get_by_role("button").click()
    shows(page, "unmatched", 4, ["12", "8"])
    page.get_by_label("Search: Conflicts").fill("BOB pc-2")
    shows(page, "conflicts", 1, ["pc-2\nh2"])
    assert page.locator("#conflicts [role=status]").inner_text() == "1 of 2"
    for words in ("PC-1 h1", "u1 h1", "ann@ gets h1"):
        page.get_by_label("Search: Hosts").fill(words)
        shows(page, "hosts", 1, ["pc-1\nh1"])
    assert page.answered == [page.url]


def test_a_long_table_is_shown_in_parts_and_sorted_and_searched_as_one(opened):
    page = opened(many_hosts(250))
    more = page.locator("#hosts .more")
    for shown in (100, 200, 250):
        expect(column(page, "hosts", 1).last).to_have_text(re.compile(f"^pc-{shown - 1}\\b"))
        if shown < 250:
            assert f"{shown} of 250" in more.inner_text()
            more.click()
    expect(more).not_to_be_visible()
    head = page.locator("#hosts th", has_text="Host").get_by_role("button")
    head.dblclick()
    expect(column(page, "hosts", 1).nth(0)).to_have_text(re.compile(r"^pc-249\b"))
    expect(column(page, "hosts", 1).nth(1)).to_have_text(re.compile(r"^pc-248\b"))
    page.get_by_label("Search: Hosts").fill("pc-24")
    expect(column(page, "hosts", 1)).to_have_count(11)


def test_each_number_opens_its_rows(opened):
    page = opened(report())
    links = page.locator("#funnel a, a[href='#hosts=host-assets']")
    assert links.count() == 8 + 3 + 1
    for link in links.all():
        number = int(link.inner_text().split()[0])
        link.click()
        expect(page.locator("#hosts tbody tr"), link.get_attribute("href")).to_have_count(number)
    page.locator(".figures a", has_text="have an owner").click()
    shows(page, "hosts", 2, ["ann@corp.example\nu1", "bob@corp.example\nu2", "u9"])
    page.locator(".figures a", has_text="owner written").click()
    shows(page, "writes", 1, ["pc-1\nh1"])
    page.get_by_role("link", name="without one").click()
    shows(page, "hosts", 1, ["pc-5\nh5", "pc-6\nh6", "pc-4\nh4"])
    page.locator("#hosts").get_by_role("link", name="Show all").click()
    expect(column(page, "hosts", 1)).to_have_count(6)


def test_hosts_and_people_have_addresses(opened):
    page = opened(report())
    page.get_by_label("Search: People").fill("bob")
    page.locator("#people tbody").get_by_role("link").click()
    assert page.url.endswith("#person=u2")
    expect(page.locator("#hosts [role=status]")).to_contain_text("bob@corp.example: 2 of 6")
    shows(page, "hosts", 1, ["pc-2\nh2", "pc-4\nh4"])  # owned, and only used
    page.locator("#conflicts").get_by_role("link", name="pc-10").click()
    assert page.url.endswith("#host=pc-10")
    shows(page, "hosts", 1, ["pc-10\nh3"])
    for address, shown in {
        "person=kim%20(account)": 1,
        "person=u9": 1,
        "person=Ann@corp.example": 4,
        "person=constructor": 0,
        "host=PC-1": 1,
        "host=h4": 1,
        "host=%": 0,
    }.items():
        page.goto(f"{page.url.partition('#')[0]}#{address}")
        page.reload()
        expect(page.locator("#hosts tbody tr"), address).to_have_count(shown)


def test_the_rows_found_are_downloaded_for_a_spreadsheet(opened):
    names = ("=cmd()", "pc;=1+1")
    logons = counts(*((name, "ann", 1) for name in (*names, "pc-9")))
    page = opened(report(logons, PEOPLE, hosts(*(host(f"h-{n}", name) for n, name in enumerate(names)))))
    page.get_by_label("Search: Hosts").fill("h-")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download: Hosts").click()
    assert download.value.suggested_filename == "hosts.csv"
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("\ufeff")
    head, *rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    assert head[:5] == ["Host", "asset", "Owner", "no owner", "Why"]
    assert head[-3:] == ["Share", "logons", "Last seen"]
    assert [row[:4] for row in rows] == [
        ["'=cmd()", "h-0", "ann@corp.example u1", ""],
        ["pc;'=1+1", "h-1", "ann@corp.example u1", ""],
    ]
    assert {row[-3] for row in rows} == {"1"}, "a number"


def test_hostile_names_run_nothing(opened):
    html = hostile_report(*HOSTILE)
    assert all(name.isprintable() for name in packed(html)["tables"]["hosts"]["fields"]["host"])
    page = opened(html)
    assert page.locator("#writes tbody tr").count() == len(HOSTILE)
    for head in page.locator("[data-table] th button").all():
        head.click()
    for name in HOSTILE:
        page.get_by_label("Search: Writes").fill(name[:50])
    assert page.answered == [page.url]
    assert page.locator("img, iframe, [onload], [onfocus], [onmouseover]").count() == 0


def test_the_browser_refuses_what_is_not_the_page_s_own(opened):
    page = opened(report())
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=pwned()>')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'pwned()'}))")
    assert page.evaluate("fetch('https://example.invalid').then(() => 'sent', () => 'refused')") == "refused"
    assert page.answered == [page.url]
    assert len(page.complaints) >= 3
    assert all("Content Security Policy" in text for text in page.complaints), page.complaints
    page.complaints.clear()


def test_the_page_fits_a_phone_where_the_search_comes_first(opened):
    page = opened(report(), viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.get_by_label("Search: Hosts").bounding_box()["y"] < 300
    assert page.locator("#hosts .rows").evaluate("rows => rows.scrollWidth - rows.clientWidth") == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Search: Hosts")).to_be_focused()


def test_on_paper_there_is_a_summary_of_two_pages_and_then_the_hosts(opened):
    page = opened(many_hosts(250), viewport={"width": 703, "height": 1032})  # A4 without its margins
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    parts = ("summary", "funnel", "conflicts", "hosts")
    tops = [page.locator(f"#{part}").bounding_box()["y"] for part in parts]
    assert tops == sorted(tops)
    assert tops[-1] < 2 * 1032
    expect(column(page, "hosts", 1)).to_have_count(250)
    for hidden in ("people", "unmatched", "writes"):
        expect(page.locator(f"#{hidden}")).not_to_be_visible()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"color_scheme": "dark"},
        {"viewport": {"width": 390, "height": 844}, "is_mobile": True},
        {"forced_colors": "active"},
    ],
    ids=["light", "dark", "phone", "high contrast"],
)
def test_a_check_of_accessibility_finds_nothing(opened, options):
    found = Axe().run(opened(report(), **options))
    assert not found.violations_count, found.generate_report()
