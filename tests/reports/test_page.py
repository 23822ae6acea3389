import base64
import hashlib
import json
import re
from datetime import date, timedelta
from html.parser import HTMLParser

import polars as pl
import pytest
from playwright.sync_api import expect

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME
from ownership.coverage import current_owners
from ownership.declaration import empty, polars_schema
from ownership.history import changed_decisions, changes_of
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tables import Accuracy, OwnerDecisionsHistory, OwnerWrites
from reports import page as page_module
from reports import page_tables, rows
from reports.page import report_page
from tests.ownership.builders import (
    NOW,
    PEOPLE,
    RUN,
    counts,
    decide,
    host,
    hosts,
    plan,
    shares_of,
    table,
    user,
    users,
)

FIRST_DAY = date(2026, 3, 1)
DAYS = pl.DataFrame(
    {
        "day": [FIRST_DAY + timedelta(days=number) for number in range(30)],
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


ACCURACY = table(
    Accuracy,
    *(
        {"measure": "future", "by": by, "value": value, "hosts": 40, "right_hosts": 38}
        | {"precision": 0.95, "low": 0.83, "high": 0.99}
        for by, value in (("all", "all"), ("share_band", "only user"), ("department", "Sales"))
    ),
)
HOW_SURE = ["At more than 60%, 3 owners would be written.", "Compared with <nobody>."]
COVERAGE = pl.DataFrame(
    {
        "day": [FIRST_DAY, FIRST_DAY + timedelta(days=29)],
        "host_assets": [6, 6],
        "owned_after": [2, 3],
        "owned_after_percent": [33.3, 50.0],
    }
)


def report(
    logons=LOGONS,
    people=PEOPLE,
    assets=ASSETS,
    *,
    instance="Demo",
    days=DAYS,
    coverage=COVERAGE,
    message=None,
    outcome="written",
    first=False,
):
    """The page after a second run, before which nobody had an owner, or after the first."""
    shares = shares_of(logons, Rules())
    decisions = decide(logons, people, assets)
    unowned = assets.with_columns(owner_ids=pl.lit([], pl.List(pl.String)))
    before = changed_decisions(
        empty(OwnerDecisionsHistory), decide(logons, people, unowned), decided_at=NOW, run_id="run-0"
    ).with_columns(pl.col("decided_at") - timedelta(days=1), run_id=pl.lit("run-0"))
    before = before.clear() if first else before
    now = changed_decisions(before, decisions, decided_at=NOW, run_id=RUN)
    writes = plan(decisions, people, assets).with_columns(
        outcome=pl.lit(outcome), message=pl.lit(message, pl.String)
    )
    if outcome != "planned":
        writes = writes.with_columns(completed_at="intended_at")
    return report_page(
        instance=instance,
        decisions=decisions,
        shares=shares,
        matches=username_matches(shares, people, user_value_field="user_email"),
        hosts=assets,
        users=people,
        days=days,
        changes=changes_of(pl.concat([before, now]).lazy(), RUN),
        writes=writes,
        all_writes=writes.filter(pl.col("outcome") != "planned").lazy(),
        coverage=coverage,
        accuracy=ACCURACY,
        how_sure=HOW_SURE,
        made_at=NOW,
    )


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the texts by the tag that holds them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else None, data))


def rows_of(html, title):
    """The rows of the table with this caption, cell by cell as text."""
    (table,) = re.findall(rf"<caption>{title}</caption>(.*?)</table>", html, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table.split("<tbody>")[1], re.DOTALL)
    cells = [re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


def test_the_tables_hold_what_the_run_found():
    html = report()
    ann = "ann@corp.example u1"
    assert rows_of(html, "Conflicts") == [
        ["pc-10 h3", "u9", f"{ann} ann", "100.0% 100 of 100 logons on 1 day", "2026-03-02"],
        ["pc-2 h2", "bob@corp.example u2", f"{ann} ann", "70.0% 7 of 10 logons on 1 day", "2026-03-02"],
    ]
    assert rows_of(html, "Unmatched users") == [
        ["kim", "1", "1", "12", "kim u3 kim u4"],
        ["ext.moore", "1", "1", "8", "none"],
    ]
    assert rows_of(html, "Days that lack events") == [
        ["2026-03-10", "3", "hardly any events, or none"],
        ["2026-03-11", "", "not fetched"],
    ]
    alone, several = EVIDENCE["single_user"], EVIDENCE["majority"]
    before, now = (f"{MATCH['matched']} {ACTION[action]}" for action in ("write", "conflict"))
    assert rows_of(html, "Changes") == [
        ["pc-2 h2", f"{several} {before}", f"{several} {now}", ann, "bob@corp.example u2"],
        ["pc-10 h3", f"{alone} {before}", f"{alone} {now}", ann, "u9"],
    ]
    assert rows_of(html, "Writes") == [
        ["pc-1 h1", f"written {OUTCOME['written']}", ann, "Support Sales", "", "2026-03-30 12:00"]
    ]
    assert rows_of(html, "Departments") == [
        ["no department", "5", "40.0% 2 of 5", "40.0% 2 of 5"],
        ["Sales", "1", "0.0% 0 of 1", "100.0% 1 of 1"],
    ]
    assert rows_of(html, "Hosts")[:3] == [
        [
            *(
                "pc-1 h1",
                ann,
                f"{alone} {before} {OUTCOME['written']} asset-owners wrote this owner on 2026-03-30.",
            ),
            *("ann", "100.0% 9 of 9 logons on 1 day", "2026-03-02"),
        ],
        [
            *("pc-2 h2", "bob@corp.example u2", f"{several} {now}"),
            *("ann", "70.0% 7 of 10 logons on 1 day", "2026-03-02"),
        ],
        [
            *("pc-4 h4", "none", f"{EVIDENCE['no_majority']} {ACTION['none']}"),
            *("ann", "60.0% 6 of 10 logons on 1 day", "2026-03-02"),
        ],
    ]
    assert rows_of(html, "People")[0] == [ann, "1", "3", "4", "0"]
    texts = " ".join(text for _, text in Elements(html).texts)
    for figure in ("6", "2", "33.3% → 50.0%"):
        assert f"<b>{figure}</b>" in html
    assert "2026-03-01 to 2026-03-30 (30 days), 149 of them by users who count, decided" in " ".join(
        texts.split()
    )
    assert EVIDENCE["no_majority"] in texts


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


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_nothing_but_text(name):
    found, honest = Elements(hostile_report(name)), Elements(hostile_report("ann"))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in honest.tags]
    assert [sorted(values) for _, values in found.tags] == [sorted(values) for _, values in honest.tags]
    scripts = [text for tag, text in found.texts if tag == "script" and '"texts":' not in text]
    assert scripts == [text for tag, text in honest.texts if tag == "script" and '"texts":' not in text]
    (packed,) = (text for tag, text in found.texts if tag == "script" and '"texts":' in text)
    assert not set("<>&") & set(packed)
    assert all(
        text.isprintable() and len(text) < 10 * page_module.MAX_NAME for text in json.loads(packed)["texts"]
    )
    assert all(text.isprintable() for tag, text in found.texts if tag == "bdi")
    assert max(len(text) for tag, text in found.texts if tag == "bdi") < 2 * page_module.MAX_NAME


def test_the_page_needs_nothing_else_and_its_policy_allows_its_own_scripts_only():
    html = report()
    found = Elements(html)
    links = {value for _, values in found.tags for name, value in values.items() if name in {"src", "href"}}
    assert all(link.startswith("#") for link in links)
    assert len(html.encode()) < 1_000_000
    (policy,) = (values["content"] for tag, values in found.tags if "http-equiv" in values and tag == "meta")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        for text in re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL):
            assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy


def many_hosts(number):
    """So many hosts, one user each, with numbers in their names."""
    names = [f"pc-{each}" for each in range(number)]
    logons = counts(*((name, "ann", 1 + place) for place, name in enumerate(names)))
    return report(logons, PEOPLE, hosts(*(host(f"h-{name}", name) for name in names)))


def test_without_scripts_a_long_table_is_cut_and_says_so():
    html = many_hosts(250)
    assert [row[0] for row in rows_of(html, "Hosts")][-1] == "pc-99 h-pc-99"
    assert len(rows_of(html, "Hosts")) == 100
    assert "The first 100 of 250." in html


def test_a_page_of_too_many_hosts_holds_the_first_and_says_so(monkeypatch):
    for module in (page_module, page_tables):
        monkeypatch.setattr(module, "MAX_ROWS", 3)
    html = report()
    assert [row[0] for row in rows_of(html, "Hosts")] == ["pc-1 h1", "pc-2 h2", "pc-4 h4"]
    assert "The page holds the first 3 of" in html


def test_a_plan_is_told_as_what_would_be():
    html = report(outcome="planned")
    assert "<b>33.3% → 50.0%</b>\nwould have an owner" in html
    assert "<b>1</b> owner planned" in html
    assert rows_of(html, "Hosts")[0][2].endswith(OUTCOME["planned"])


def test_an_asset_without_a_name_is_told_by_its_id():
    html = report(assets=hosts(host("h7", owners=("u9",))))
    (row,) = (row for row in rows_of(html, "Changes") if row[0] == "no host name h7")
    reasons = [f"{EVIDENCE['no_hostname']} {ACTION[action]}" for action in ("none", "keep")]
    assert row[1:3] == reasons


def test_a_first_run_has_nothing_to_be_compared_with():
    html = report(first=True)
    assert "This is the first run." in html
    assert "new host" not in html


def test_a_page_about_nothing_says_so():
    html = report(counts(), PEOPLE, hosts(), days=DAYS.clear())
    assert "The last run knew no host" in html
    assert "Nobody logged on anywhere." in html
    assert html.count('<p class="note">None.</p>') == 3
    assert "No host is known." in html


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page in a browser and collects what it asks for and complains about."""
    contexts = []

    def open_page(html, **options):
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8", newline="")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.requested, page.answered, page.complaints = [], [], []
        page.on("request", lambda request: page.requested.append(request.url))
        page.on("requestfinished", lambda request: page.answered.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
        page.add_init_script("window.pwned = () => alert('pwned')")
        page.set_default_timeout(20_000)
        page.goto(file.as_uri())
        if options.get("java_script_enabled", True):
            page.locator("#funnel-plot svg").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()


def column(page, section, number):
    return page.locator(f"#{section} tbody tr:visible td:nth-child({number})").all_inner_texts()


def test_it_says_how_often_owners_were_right(opened):
    page = opened(report())
    assert page.locator("[data-table=accuracy] tbody tr").all_inner_texts() == [
        "Who leads the logons of the days that were held back\tall hosts\t95.0%\n38 of 40\n\t83.0%\t99.0%",
        "Who leads the logons of the days that were held back\tonly user\t95.0%\n38 of 40\n\t83.0%\t99.0%",
    ]


def test_it_says_how_sure_the_owners_are(opened):
    told = opened(report()).locator("#how-sure").inner_text()
    assert told == "At more than 60%, 3 owners would be written. Compared with <nobody>."


def test_tables_are_sorted_by_a_click(opened):
    page = opened(report())
    names = ["pc-10\nh3", "pc-2\nh2"]
    assert column(page, "conflicts", 1) == names
    host_head = page.locator("#conflicts th").first
    host_head.get_by_role("button").click()
    assert column(page, "conflicts", 1) == names[::-1]  # 2 comes before 10
    assert host_head.get_attribute("aria-sort") == "ascending"
    host_head.get_by_role("button").click()
    assert column(page, "conflicts", 1) == names
    page.locator("#unmatched th", has_text="Logons").get_by_role("button").click()
    assert column(page, "unmatched", 4) == ["12", "8"]
    page.locator("#unmatched th", has_text="Logons").get_by_role("button").click()
    assert column(page, "unmatched", 4) == ["8", "12"]


def test_tables_are_searched_by_words_in_any_case(opened):
    page = opened(report())
    page.get_by_label("Search: Conflicts").fill("BOB pc-2")
    assert column(page, "conflicts", 1) == ["pc-2\nh2"]
    assert page.locator("#conflicts [role=status]").inner_text() == "1 of 2"
    assert len(column(page, "changes", 1)) == 2
    page.get_by_label("Search: Conflicts").fill("")
    assert len(column(page, "conflicts", 1)) == 2


def test_my_machine_is_found_by_a_word_of_it_or_of_its_owner(opened):
    page = opened(report())
    for words in ("PC-1 h1", "u1 h1", "ann@ gets h1"):
        page.get_by_label("Search: Hosts").fill(words)
        assert column(page, "hosts", 1) == ["pc-1\nh1"]
    row = page.locator("#hosts tbody tr").inner_text()
    for told in ("ann@corp.example", EVIDENCE["single_user"], "9 of 9 logons on 1 day", "2026-03-02"):
        assert told in row


def test_pages_of_a_long_table_are_turned_and_sorted_and_searched_as_one(opened):
    page = opened(many_hosts(250))
    pager = page.locator("#hosts .pager")
    assert column(page, "hosts", 1)[-1] == "pc-99\nh-pc-99"
    for _ in range(2):
        pager.get_by_role("button", name="Next").click()
    assert "Rows 201 to 250 of 250" in pager.inner_text()
    assert pager.get_by_role("button", name="Next").is_disabled()
    assert column(page, "hosts", 1)[-1] == "pc-249\nh-pc-249"
    head = page.locator("#hosts th", has_text="Host").get_by_role("button")
    head.click()
    head.click()
    assert column(page, "hosts", 1)[:2] == ["pc-249\nh-pc-249", "pc-248\nh-pc-248"]
    page.get_by_label("Search: Hosts").fill("pc-24")
    assert len(column(page, "hosts", 1)) == 11
    expect(pager).not_to_be_visible()


def test_each_number_opens_its_rows(opened):
    page = opened(report())
    links = page.locator("a[href^='#hosts=']:not(.figures a), a[href='#hosts=host-assets']")
    assert links.count() == 8 + 3 + 1
    for link in links.all():
        number = int(link.inner_text().split()[0])
        link.click()
        rows = page.locator("#hosts tbody tr:visible")
        expect(rows, link.get_attribute("href")).to_have_count(number)
    page.locator(".figures a", has_text="have an owner").click()
    expect(page.locator("#hosts tbody tr")).to_have_count(3)
    assert column(page, "hosts", 2) == ["ann@corp.example\nu1", "bob@corp.example\nu2", "u9"]
    page.locator(".figures a", has_text="owner written").click()
    expect(page.get_by_label("Show: Writes")).to_have_value("written")
    assert column(page, "writes", 1) == ["pc-1\nh1"]
    page.get_by_label("Show: Hosts").select_option("without-owner")
    assert column(page, "hosts", 1) == ["pc-4\nh4", "pc-5\nh5", "pc-6\nh6"]
    assert page.complaints == []


def test_of_too_many_logons_each_person_keeps_those_of_most_events_and_the_page_says_so(opened, monkeypatch):
    monkeypatch.setattr(rows, "MAX_LOGONS", 4)
    page = opened(report())
    page.evaluate("location.hash = '#person=u1'")
    expect(page.locator("#person")).to_contain_text("the hosts that people use most")
    assert person_rows(page, "Logs on to") == ["pc-10"]


@pytest.mark.parametrize(
    "names",
    [
        ["pc2", "PC10", "pc10a", "pc100"],
        ["", "1", "02", "10", "a", "B", "c1d2", "c1d10"],
        ["0" * 5000 + "7", "8", "9" * 4999, "1" * 5000, "9" * 5000, "a"],
    ],
)
def test_names_are_sorted_as_people_do(names):
    assert sorted(set(names), key=rows.natural_order) == names


@pytest.mark.parametrize(
    ("values", "way"),
    [
        ([5, 1, 9, 4], list),
        ([100_000, 100_001, 100_002, 100_003], "steps"),
        ([100_000, None] * 9, "of"),
        ([0.5, 0.25], list),
        ([], list),
    ],
)
def test_columns_are_written_in_the_shortest_way(values, way):
    written = rows.compact(values)
    assert way is list or way in written
    if way is list:
        assert written == values


def person_rows(page, heading):
    """The hosts that the page of a person shows under a heading."""
    table = page.locator("#person h3", has_text=heading).locator("xpath=following-sibling::div[1]")
    return [text.split("\n")[0] for text in table.locator("tbody td:first-child").all_inner_texts()]


def test_what_was_put_back_is_told_also_after_a_run_that_left_the_host_alone():
    assets = hosts(host("h1", "pc-1"))
    decisions = decide(LOGONS, PEOPLE, assets).filter(host_id="h1")
    written = plan(decisions, PEOPLE, assets)
    writes = pl.concat(
        written.with_columns(
            outcome=pl.lit(outcome), completed_at=pl.col("intended_at") + timedelta(minutes=minutes)
        )
        for minutes, outcome in enumerate(["written", "undone", "not_written"])
    ).lazy()
    table = page_tables.hosts_table(decisions, current_owners(assets, writes), writes)
    assert table.frame["what_follows"][0].endswith(OUTCOME["undone"])


def test_the_days_of_a_host_s_leading_user_are_told_under_several_names_too():
    """The tables do not hold those of its other users, whose days under two names may be the same."""
    logons = counts(("pc-1", "ann", 9), ("old-1", "ann", 3), ("pc-1", "bob", 1), ("old-1", "bob", 1))
    assets = hosts(host("h1", "pc-1", "old-1"))
    shares, decisions = shares_of(logons, Rules()), decide(logons, PEOPLE, assets)
    writes = pl.LazyFrame(schema=polars_schema(OwnerWrites))
    table = page_tables.hosts_table(decisions, current_owners(assets, writes), writes)
    found = page_tables.logons_of(shares, table.frame)
    assert found.select("username", "events", "active_days").rows() == [("ann", 12, 1), ("bob", 2, None)]


def test_a_person_is_shown_with_machines_logons_and_what_is_theirs_on_paper(opened):
    page = opened(report())
    page.get_by_label("Search: People").fill("bob")
    page.locator("#people tbody").get_by_role("link").click()
    assert page.url.endswith("#person=u2")
    expect(page.locator("#person h2")).to_have_text("bob@corp.example")
    assert "Logs on as bob" in page.locator("#person").inner_text()
    assert person_rows(page, "Machines") == ["pc-2"]
    assert person_rows(page, "Logs on to") == ["pc-4", "pc-2"]
    assert person_rows(page, "On paper") == ["pc-2"]
    assert "3 of 10 logons on 1 day" in page.locator("#person").inner_text()
    expect(page.locator("#hosts")).not_to_be_visible()
    page.locator("#person").get_by_role("link", name="ann").first.click()
    assert page.url.endswith("#person=u1")
    expect(page.locator("#person h2")).to_have_text("ann@corp.example")
    assert person_rows(page, "Machines") == ["pc-1", "pc-2", "pc-10"]
    assert person_rows(page, "Logs on to") == ["pc-10", "pc-1", "pc-2", "pc-4"]
    assert person_rows(page, "On paper") == []
    page.get_by_role("link", name="All people").click()
    expect(page.locator("#hosts")).to_be_visible()
    expect(page.locator("#person")).not_to_be_visible()
    assert page.complaints == []


def test_a_link_opens_the_page_of_a_person_and_one_to_nobody_the_report(opened):
    page = opened(report())
    for hash_, shown in (("#person=u9", "#person"), ("#person=nobody", "#hosts"), ("#person=%", "#hosts")):
        page.goto(page.url.partition("#")[0] + hash_)
        page.reload()
        expect(page.locator(shown)).to_be_visible()
    assert page.complaints == []


def test_plots_of_a_page_that_was_opened_at_a_person_have_their_width_afterwards(opened):
    page = opened(report())
    page.goto(page.url + "#person=u1")
    page.reload()
    page.get_by_role("link", name="All people").click()
    expect(page.locator("#funnel-plot svg")).to_have_attribute("width", re.compile(r"^1?\d{3}"))


def test_an_account_that_may_be_several_people_leads_to_them_and_back(opened):
    page = opened(report())
    page.locator("#unmatched").get_by_role("link", name="kim").first.click()
    assert page.url.endswith("#account=kim")
    page.locator("#person").get_by_role("link", name="kim").first.click()
    assert page.url.endswith("#person=u3")
    expect(page.locator("#person").get_by_role("link", name="kim")).to_have_count(1)
    page.locator("#person").get_by_role("link", name="kim").click()
    expect(page.locator("#person")).to_contain_text("may be any of these")
    assert person_rows(page, "Logs on to") == ["pc-6"]
    expect(page.locator("#person").get_by_role("link", name="kim")).to_have_count(2)


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Pacific/Kiritimati", "America/Santiago"])
def test_plots_are_drawn_without_a_request_whatever_the_time_zone(opened, zone):
    page = opened(report(), timezone_id=zone)
    assert page.requested == [page.url]
    assert page.complaints == []
    assert "more than 60%" in page.locator("#shares-plot").inner_text()
    assert "hosts known" in page.locator("#funnel-plot").inner_text()
    days = page.locator("#days-plot").inner_text()
    assert "01 Mar" in days
    assert "28 Feb" not in days
    assert "not fetched" in days
    page.locator("#days-plot .mark-rect.role-mark path").last.hover()
    assert page.locator(".tip").inner_text() == "2026-03-30, 800 logon events"


def test_hostile_names_run_nothing(opened):
    page = opened(hostile_report(*HOSTILE))
    assert page.locator("#writes tbody tr").count() == len(HOSTILE)
    for head in page.locator("table.data th button").all():
        head.click()
    for name in HOSTILE:
        page.get_by_label("Search: Writes").fill(name[:50])
        page.keyboard.press("Tab")
    assert page.complaints == []
    assert page.requested == [page.url]
    assert page.locator("img, iframe, [onload], [onfocus], [onmouseover]").count() == 0


def test_the_browser_refuses_what_is_not_the_page_s_own(opened):
    page = opened(report())
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=pwned()>')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'pwned()'}))")
    assert page.evaluate("fetch('https://example.invalid').then(() => 'sent', () => 'refused')") == "refused"
    assert page.answered == [page.url]
    assert len(page.complaints) >= 3
    assert all("Content Security Policy" in text for text in page.complaints), page.complaints


def brightness(page, selector="body"):
    colour = page.locator(selector).first.evaluate("one => getComputedStyle(one).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_the_page_is_dark_where_the_reader_wants_it_and_light_on_paper(opened):
    page = opened(report(), color_scheme="dark")
    assert brightness(page) < 150
    ink = "document.querySelector('#funnel-plot text')"
    fill = f"getComputedStyle({ink}).fill"
    assert page.evaluate(fill) == "rgb(228, 228, 224)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(fill) == "rgb(35, 39, 44)"
    expect(page.locator(".tools").first).not_to_be_visible()
    assert brightness(opened(report(), color_scheme="light")) > 600


def test_on_paper_heads_are_no_buttons_which_a_browser_does_not_repeat_on_each_page(opened):
    page = opened(many_hosts(250))
    page.emulate_media(media="print")
    head = page.locator("#hosts th").first
    expect(head.get_by_role("button")).not_to_be_visible()
    assert head.evaluate("one => getComputedStyle(one, '::before').content") == '"Host"'
    assert head.evaluate("one => getComputedStyle(one.closest('thead')).display") == "table-header-group"
    assert "Rows 1 to 100 of 250" in page.locator("#hosts .pager").inner_text()


def test_on_paper_addresses_stay_whole(opened):
    address = "bartholomew.king@corp.example"
    people = users(user("u1", email=f"ann.{address}"), user("u2", email=address))
    logons = counts(("pc-1", f"ann.{address}", 3), ("pc-2", address, 3))
    page = opened(
        report(logons, people, hosts(host("h1", "pc-1", owners=("u2",)), host("h2", "pc-2"))),
        viewport={"width": 700, "height": 1000},
    )
    page.emulate_media(media="print")
    for link in page.locator("#hosts, #conflicts").get_by_role("link").all():
        assert link.evaluate("one => one.getClientRects().length") == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_the_page_fits_a_phone(opened):
    page = opened(report(), viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    label = "getComputedStyle(document.querySelector('#conflicts td'), '::before').content"
    assert page.evaluate(label) == '"Host"'
    page.locator("#conflicts th button").first.tap()
    assert column(page, "conflicts", 1)[0].startswith("pc-2")


def test_without_scripts_the_tables_are_there(opened):
    page = opened(report(), java_script_enabled=False)
    assert "Without JavaScript" in page.locator("header").inner_text()
    assert "pc-10" in page.locator("#conflicts").inner_text()
