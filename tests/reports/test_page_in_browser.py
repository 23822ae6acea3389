import csv
import io
import re
import shlex
from datetime import timedelta
from functools import cache
from itertools import product

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from ownership.rules import Rules
from ownership.windows import Window
from pipelines.cli.options import read_host_names
from tests.ownership.builders import PEOPLE, WINDOW, counts, host, hosts, user, users
from tests.reports import test_page
from tests.reports.test_page import packed, report

pytestmark = pytest.mark.slow  # also because the browser's library takes a second to import


MILLISECONDS = 120_000
"""How long a page may take, on a machine with much else to do."""
PHONE = {"viewport": {"width": 375, "height": 812}, "is_mobile": True, "has_touch": True}

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


@cache
def standard(outcome="written"):
    """The page that most tests look at."""
    return report(outcome=outcome)


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page in a browser and collects what it asks for and complains about: nothing, at its end."""
    contexts, complaints = [], []

    def open_page(html, address="", script="", **options):
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8", newline="")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.answered, page.complaints = [], complaints
        page.on("requestfinished", lambda request: page.answered.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
        page.add_init_script(f"window.pwned = () => alert('pwned'); {script}")
        page.set_default_timeout(MILLISECONDS)
        expect.set_options(timeout=MILLISECONDS)
        page.goto(file.as_uri() + (address and f"#{address}"))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def go(page, address):
    """Follow a link within the page, which is quicker than to open it once more."""
    page.goto(f"{page.url.partition('#')[0]}#{address}")


def lists(page, *names, first="name"):
    """The list shows these rows, by the texts of a column."""
    expect(page.locator(f"#rows tbody td.{first}")).to_have_text(names)


def copied(button):
    """What a button copies, once it says so; the page may read and write the clipboard."""
    button.click()
    page = button.page
    expect(page.get_by_role("button", name=re.compile("^Copied")).first).to_be_visible()
    return page.evaluate("navigator.clipboard.readText()")


CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def search(page, words):
    page.get_by_label("Search").fill(words)


def test_what_is_filtered_is_in_the_address_that_can_be_sent(opened):
    page = opened(standard(), **CLIPBOARD)
    lists(page, "pc-1", "pc-2", "pc-5", "pc-6", "pc-10", "pc-4")
    page.get_by_role("link", name="no owner 3").click()
    lists(page, "pc-5", "pc-6", "pc-4")
    expect(page.locator("#facets")).to_contain_text("conflict 2")  # what a click would add
    page.get_by_role("link", name="no majority 1").click()
    search(page, "ANN")
    lists(page, "pc-4")
    sent = copied(page.get_by_role("button", name="Copy link"))
    expect(page.get_by_role("button", name="Copied; it works on this machine only")).to_be_visible()
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("#list [role=status]")).to_have_text("6 of 6")
    page.go_back()
    lists(page, "pc-4")
    other = opened(standard(), sent.partition("#")[2])
    lists(other, "pc-4")
    expect(other.get_by_label("Search")).to_have_value("ANN")


def test_a_text_in_any_spelling_finds_hosts(opened):
    page = opened(standard())
    for words, names in {
        "PC-5.OTHER.EXAMPLE": ["pc-5"],
        "h6": ["pc-6"],
        r"CORP\kim": ["pc-6"],
        "KIM@corp.example": ["pc-6"],
        "Bob@corp.example": ["pc-2", "pc-4"],  # owned, and used
        "ann pc-10": ["pc-10"],
        "nobody": [],
    }.items():
        search(page, words)
        lists(page, *names)


def test_each_number_opens_its_rows(opened):
    page = opened(standard())
    links = page.locator("#cards a:not(.figure)")
    expect(links).to_have_count(5 + 10 + 4)
    for link in links.all():
        text = link.get_attribute("aria-label") or link.inner_text()
        number = int(re.findall(r"\d+", text)[-1])
        link.click()
        expect(page.locator("#rows tbody tr"), link.get_attribute("href")).to_have_count(number)
    page.locator("#cards .figure").click()
    lists(page, "pc-1", "pc-2", "pc-10")


def test_lists_are_sorted_and_downloaded_for_a_spreadsheet(opened):
    names = ("=cmd()", "pc;=1+1", "pc-2", "pc-10")
    logons = counts(*((name, "ann", number + 1) for number, name in enumerate(names)), ("pc-10", "bob", 3))
    page = opened(report(logons, PEOPLE, hosts(*(host(f"h-{n}", name) for n, name in enumerate(names)))))
    share = page.get_by_role("columnheader", name="Share")
    share.get_by_role("link").click()
    expect(share).to_have_attribute("aria-sort", "descending")
    assert page.locator("#rows tbody td.name").all_inner_texts()[-1] == "pc-10"
    page.get_by_role("columnheader", name="Host").get_by_role("link").click()
    lists(page, "=cmd()", "pc-2", "pc-10", "pc;=1+1")  # 2 comes before 10
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "hosts.csv"
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("\ufeff")
    head, *rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    assert head[:6] == ["Host", "Owner", "Status", "Share", "User's last logon", "Department"]
    assert head[6:] == ["Primary user", "Owner's address", "Host id", "What would change it"]
    assert [row[0] for row in rows] == ["'=cmd()", "pc-2", "pc-10", "pc;'=1+1"]
    assert rows[0].pop().startswith("To change the owner")
    assert rows[0][1:] == [
        "ann@corp.example",
        "written: only one user",
        "100%",
        "2026-03-02",
        "Sales",
        *["ann@corp.example"] * 2,
        "h-0",
    ]


def test_a_host_that_a_link_opens_is_in_sight_and_keys_go_on_from_there(opened):
    names = [f"pc-{number}" for number in range(300)]
    logons = counts(*((name, "ann", 2) for name in names))
    page = opened(report(logons, assets=hosts(*(host(name, name) for name in names))), "host=pc-250")
    marked = page.locator("#rows tr[aria-current]")
    expect(marked).to_contain_text("pc-250")
    expect(marked).to_be_in_viewport()
    for key, name in (("ArrowDown", "pc-251"), ("j", "pc-252"), ("k", "pc-251")):
        page.keyboard.press(key)
        expect(page.locator("#rows a:focus")).to_have_text(name)
    page.keyboard.press("/")
    page.keyboard.type("j/k")
    expect(page.get_by_label("Search")).to_have_value("j/k")


def test_an_empty_list_says_why_and_where_to_look(opened):
    page = opened(standard(), "view=conflicts&q=pc-6")
    expect(page.locator("#about-rows")).to_have_text(
        re.compile("^None of 2 fits the search.* It is in: Hosts$")
    )
    expect(page.get_by_role("columnheader", name="Host")).to_be_hidden()
    page.get_by_role("link", name="Hosts", exact=True).click()
    lists(page, "pc-6")
    page.get_by_role("link", name="Accounts to identify 2").click()
    heads = ["User", "Hosts without owner", "Hosts used", "Logons", "User assets"]  # nobody to mean
    expect(page.get_by_role("columnheader")).to_have_text(heads)
    page = opened(report(counts(), PEOPLE, hosts(host("h1", "pc-1")), outcome="planned"))
    for view, said in {
        "conflicts": "No host has another owner",
        "writes": "There is nothing to write",
        "users": "Each account in the logons belongs to one person",
        "people": "no user asset that owns or uses",
        "names": "The inventory has every host",
    }.items():
        go(page, f"view={view}")
        expect(page.locator("#about-rows")).to_contain_text(said)


def test_a_conflict_names_the_owner_without_logons_and_is_copied_for_a_ticket(opened):
    html = standard()
    page = opened(html, "host=h3", **CLIPBOARD)
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("u9 (no such user asset) (owner): no logon in 30 days")
    heads = ["What would change it", "Or let the owner stay, for operators", "Who logs on"]
    assert panel.locator("h3").all_text_contents()[:3] == heads
    sentence, please = copied(panel.get_by_role("button", name="Copy for a ticket")).splitlines()
    assert sentence.startswith(
        "pc-10 belongs to u9 (no such user asset) in the inventory, but its primary user is"
    )
    assert re.match(r"Logons of 30 days up to \d+ Mar 2026\. Please check whose it is, and correct", please)
    page.route("http://localhost/**", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto("http://localhost/#host=h3")
    served = copied(panel.get_by_role("button", name="Copy for a ticket"))
    assert served.splitlines() == [sentence, please, page.url]
    go(page, "host=h5")
    _, advice, please, _ = copied(panel.get_by_role("button", name="Copy for a ticket")).splitlines()
    assert advice.startswith("Give ext.moore a user asset")
    assert please.endswith("Please find out whose it is.")
    expect(opened(standard(), "host=h2").get_by_role("complementary")).not_to_contain_text("no logon in")


def test_a_host_opens_beside_the_list_by_click_and_key(opened):
    page = opened(standard())
    panel = page.get_by_role("complementary")
    page.locator("#rows tbody tr", has_text="pc-1").first.get_by_text("written").click()
    for text in ("pc-1 belongs to", "To change the owner", "by kim, run run-1", "Sales"):
        expect(panel).to_contain_text(text)
    expect(panel.get_by_role("img", name="2 of the last 30 days")).to_be_visible()
    expect(panel.locator("code")).to_have_text("asset-owners undo --instance demo run-1 --host h1 --wrong")
    expect(panel).to_contain_text("without --wrong the next run does")
    expect(page.locator("#rows tr[aria-current]")).to_contain_text("pc-1")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator(":focus")).to_have_text("pc-1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(panel.locator("code")).to_have_text(
        "asset-owners conflicts --instance demo --acknowledge h2 --note 'why'"
    )
    expect(page.locator(":focus")).to_have_text("pc-2")
    page.go_back()
    expect(panel).to_be_hidden()


def test_the_note_of_an_acknowledged_conflict_is_shown_whole(opened):
    note = f"a loan {'until a colleague is back ' * 40}in October"
    panel = opened(report(note=note), "host=pc-2").get_by_role("complementary")
    expect(panel.locator("dd", has_text="by kim")).to_contain_text(f"by kim: {note}")


@pytest.mark.parametrize(
    ("host_id", "name", "owners", "says"),
    [
        ("@1", "pc-1", (), "undo --instance demo run-1 --host ' @1' --wrong"),
        ("-1", "pc-1", (), "undo --instance demo run-1 --host ' -1' --wrong"),
        ("@h1", "pc", ("u2",), "conflicts --instance demo --acknowledge ' @h1' --note 'why'"),
    ],
)
def test_the_command_for_a_host_takes_no_name_for_a_file_or_an_option(opened, host_id, name, owners, says):
    html = report(counts((name, "ann", 5)), assets=hosts(host(host_id, name, owners=owners)))
    command = opened(html, f"host={host_id}").get_by_role("complementary").locator("code")
    expect(command).to_have_text(f"asset-owners {says}")
    assert read_host_names([shlex.split(says)[-3 if owners else -2]]) == [host_id]


@pytest.mark.parametrize(
    ("script", "policy"), [("", "script-src 'none'"), ("delete window.DecompressionStream", "")]
)
def test_where_the_script_cannot_run_the_page_says_why_there_is_no_list(opened, script, policy):
    html = standard().replace(
        "<head>", f"<head><meta http-equiv='Content-Security-Policy' content=\"{policy}\">"
    )
    page = opened(html, script=script)
    expect(page.get_by_text("If they do not, the browser is older than 2024")).to_be_visible()
    assert page.complaints
    page.complaints.clear()
    expect(opened(standard()).get_by_text("If they do not")).to_have_count(0)


def test_a_person_opens_with_hosts_and_accounts(opened):
    page = opened(standard())
    page.get_by_role("link", name="People").click()
    search(page, "bob")
    page.locator("#rows").get_by_role("link", name="bob").click()
    panel = page.get_by_role("complementary")
    for text in ("Owns: 1", "Primary user of: 1", "Logs on to: 3", "pc-4", "Accounts"):
        expect(panel).to_contain_text(text)
    panel.get_by_role("link", name="pc-2").first.click()
    expect(panel.get_by_role("heading", level=2)).to_have_text("pc-2")
    for address, shown in {
        "person=kim%20(account)": "kim",
        "person=u9": "u9 (no such user asset)",
        "person=Ann@corp.example": "ann@corp.example",
        "person=CORP%5CExt.Moore": "ext.moore",
        "person=Ann%20(u1)": "ann@corp.example",
        "host=PC-1": "pc-1",
        "host=PC-1.Corp.Example": "pc-1",
        "host=H4": "pc-4",
    }.items():
        go(page, address)
        expect(panel.get_by_role("heading", level=2), address).to_have_text(shown)
    go(page, "person=ext.moore%20(account)")
    expect(panel).to_contain_text("What would change itGive ext.moore a user asset")
    for address in ("person=constructor", "host=%", "host=.x", "person=ann%20(u7)", "view=constructor"):
        go(page, address)
        expect(panel, address).to_be_hidden()


FOUND = {
    "exact": {
        "host=PC-3.Corp.Example": "pc-3.corp.example",
        "host=pc-3-old": "pc-3.corp.example",
        "host=pc-3": None,
        "host=10.0.0.7": "10.0.0.7",
    },
    "short": {
        "host=10.0.0.7": "10.0.0.7",
        "host=10": None,
        "host=PC-3.Other.Example": "pc-3",
        "person=x1": "Dee Olu",
        "person=Olu": None,
        "person=D.Olu@corp.example": "Dee Olu",
        "person=dee": None,
        "person=dee%20olu": "Dee Olu",
        "person=CORP%5Cd.olu": "Dee Olu",
    },
}


@pytest.mark.parametrize("host_match", FOUND)
def test_a_link_opens_what_explain_finds(opened, host_match):
    addresses = ["dee.olu@corp.example", "d.olu@corp.example"]
    people = users(user("u1", sam="x1", user_email=addresses), user("u2", email="kay.olu@corp.example"))
    logons = counts(("pc-3.corp.example", "dee.olu", 5), ("10.0.0.7", "kay.olu", 5))
    assets = hosts(host("h3", "pc-3.corp.example", "pc-3-old"), host("h7", "10.0.0.7"))
    page = opened(report(logons, people, assets, rules=Rules(hostname_match=host_match)))
    panel = page.get_by_role("complementary")
    for address, name in FOUND[host_match].items():
        go(page, "")
        expect(panel, address).to_be_hidden()
        go(page, address)
        if name is None:
            expect(page.locator("#hint")).to_contain_text("This page does not know ")
            expect(panel, address).to_be_hidden()
        else:
            expect(panel.get_by_role("heading", level=2), address).to_have_text(name)


def test_a_name_of_several_hosts_or_people_shows_each_of_them(opened):
    people = users(user("u1", email="ann.lee@one.example"), user("u2", email="ann.lee@two.example"))
    assets = hosts(host("h1", "pc-1"), host("h2", "pc-2", "pc-1"), host("h3", "pc-3"), host("h4", "pc-1"))
    html = report(counts(("pc-1", "ann.lee", 5)), people, assets)
    page = opened(html, "host=PC-1")
    panel = page.get_by_role("complementary")
    heading = panel.get_by_role("heading", level=2)
    lists(page, "pc-1 (h1)", "pc-1 (h4)", "pc-2", "pc-3")
    expect(heading).to_have_text("pc-1 (h1)")
    expect(panel).to_contain_text("3 hosts in the inventory have this name. See also: pc-1 (h4), pc-2")
    panel.get_by_role("link", name="pc-1 (h4)").click()
    expect(heading).to_have_text("pc-1 (h4)")
    expect(page.locator("#rows tr[aria-current]")).to_contain_text("pc-1 (h4)")
    expect(opened(html, "host=h3").get_by_role("complementary")).not_to_contain_text("have this name")
    page = opened(html, "person=ann.lee")
    several = "3 people and accounts are called ann.lee: ann.lee, Ann Lee (u1), Ann Lee (u2)"
    expect(page.locator("#hint")).to_have_text(several)
    page.locator("#hint").get_by_role("link", name="Ann Lee (u2)").click()
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_have_text("Ann Lee (u2)")


def test_a_sentence_is_read_from_left_to_right_whatever_name_it_begins_with(opened):
    html = report(counts(("حاسوب-أحمد", "ann", 5)), assets=hosts(host("h1", "حاسوب-أحمد", owners=("u2",))))
    sentence = opened(html, "host=h1").get_by_role("complementary").get_by_text("belongs to bob")
    assert sentence.evaluate("found => getComputedStyle(found).direction") == "ltr"


def test_a_share_that_is_not_the_owner_s_names_its_user(opened):
    page = opened(standard(), "q=ann")
    shares = {"pc-1": "100%", "pc-2": "70% ann@corp.example", "pc-4": "60% ann"}
    for name, share in shares.items():
        row = page.locator("#rows tbody tr", has=page.get_by_role("link", name=name, exact=True))
        expect(row.locator("td.sure")).to_have_text(share)


def test_all_hosts_of_a_person_are_listed_and_no_others(opened):
    people = users(user("u1", email="ann@corp.example", sam="x1"), user("u12", email="joanna@corp.example"))
    logons = counts(("pc-1", "x1", 9), ("pc-2", "ann", 5), ("pc-4", "joanna", 5))
    assets = hosts(*(host(f"h{n}", f"pc-{n}", owners=("u1",) if n == 3 else ()) for n in range(1, 5)))
    page = opened(report(logons, people, assets), "view=conflicts&status=written&person=u1")
    page.get_by_role("link", name="All these hosts in the list").click()
    expect(page.locator("#rows tbody td.name")).to_have_text(["pc-1", "pc-2", "pc-3"])
    expect(page.locator("#list [role=status]")).to_contain_text("Person: x1")


def test_a_name_without_an_asset_that_is_an_asset_s_id_opens_itself(opened):
    page = opened(report(counts(("7", "ann", 5)), assets=hosts(host("7", "pc-1"))), "view=names")
    page.locator("#rows tbody a").first.click()
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_have_text("7")


def test_the_strip_of_a_short_window_has_its_days_only(opened, monkeypatch):
    last = [WINDOW.last - timedelta(days=age) for age in range(7)]
    monkeypatch.setattr(test_page, "WINDOW", Window(last[-1], last[0]))
    logons = counts(*(("pc-1", "ann", 1, day) for day in last[:5]))
    panel = opened(report(logons), "host=h1").get_by_role("complementary")
    expect(panel.locator("svg.strip")).to_have_attribute("aria-label", "5 of the last 7 days")
    expect(panel.locator("svg.strip rect")).to_have_count(7)
    expect(panel.locator("svg.strip rect.on")).to_have_count(5)


def test_a_plan_says_plan_what_each_field_would_get_and_its_command_is_copied(opened):
    page = opened(standard("planned"), "host=h1", **CLIPBOARD)
    for place in (page.locator("#rows td.department").first, page.get_by_role("complementary")):
        expect(place).to_contain_text("Support → Sales")
    host = page.locator("#rows tbody tr", has=page.get_by_role("link", name="pc-1", exact=True))
    expect(host.locator("td.status")).to_have_text(
        "planned only one user, on 2 days, user mostly on other hosts (40% here)"
    )
    expect(page).to_have_title(re.compile("^PLAN"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("PLAN")
    expect(page.get_by_role("columnheader", name="Owner (PLAN)")).to_be_visible()
    command = copied(page.get_by_role("button", name="Copy", exact=True).first)
    assert command == "asset-owners apply --instance demo run-1"


def test_wrong_owners_are_named_with_the_command_that_undoes_them_and_times_are_the_reader_s(opened):
    page = opened(standard(), timezone_id="Asia/Tokyo", **CLIPBOARD)
    expect(page.locator("header time")).to_have_text("30 Mar 2026, 21:00")
    expect(page.locator("#answered-no")).to_contain_text("1 is <wrong>:")
    command = copied(page.locator("#answered-no").get_by_role("button", name="Copy"))
    assert command == "asset-owners undo run-1 --wrong"


def test_on_a_phone_rows_are_cards_and_what_opens_takes_the_screen(opened):
    page = opened(standard(), "view=conflicts", **PHONE)
    sure = page.locator("#rows td.sure").first
    assert sure.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Share"'
    page = opened(standard(), **PHONE)
    assert page.get_by_label("Search").bounding_box()["y"] < 700
    expect(page.locator("#cards section").first).to_be_in_viewport()
    page.locator("#rows tbody tr").first.tap()
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("pc-1 belongs to")
    assert panel.bounding_box() == {"x": 0, "y": 0, "width": 375, "height": 812}
    panel.get_by_role("link", name="Close").tap()
    expect(panel).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_a_print_is_a_summary_and_a_line_for_each_host(opened):
    number = 300
    logons = counts(*((f"pc-{each}", "ann", 2) for each in range(number)))
    page = opened(report(logons, assets=hosts(*(host(f"h{each}", f"pc-{each}") for each in range(number)))))
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 4
    page.emulate_media(media="print")
    expect(page.get_by_role("columnheader", name="Department")).to_be_visible()
    row = page.locator("#rows tbody tr").first
    assert row.bounding_box()["height"] < 13
    expect(page.get_by_role("button", name="Download")).to_be_hidden()
    page.emulate_media(media="null")
    page.locator("#rows tbody tr").first.click()
    expect(page.get_by_role("complementary")).to_be_visible()
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 1
    page.emulate_media(media="print")
    expect(row).to_be_hidden()
    for other in ("#answered-no", "#days", "#about", "#cards"):
        expect(page.locator(other)).to_be_hidden()


def test_no_list_is_cut_off_whatever_is_open_beside_it(opened):
    page = opened(standard())
    cut = "all => all.some(({scrollWidth, clientWidth}) => scrollWidth > clientWidth)"
    for view, beside in product(
        ("hosts", "conflicts", "people", "users", "writes", "names"), ("", "&host=h1")
    ):
        go(page, f"view={view}{beside}")
        expect(page.locator("#views [aria-current]")).to_have_attribute("href", f"#view={view}")
        expect(page.get_by_role("complementary")).to_be_visible(visible=bool(beside))
        for width in (768, 960, 1216, 1280, 1600):
            page.set_viewport_size({"width": width, "height": 800})
            assert not page.locator("#rows, #rows td, html").evaluate_all(cut), (view, beside, width)


@pytest.mark.parametrize("width", [375, 960, 1300])
def test_what_narrows_the_list_is_named_beside_its_number_and_is_taken_away_there(opened, width):
    address = "status=no+owner&status=conflict&reason=no+majority&stage=2&sure=6"
    beside = "&host=h4" if width > 375 else ""
    page = opened(standard(), address + beside, viewport={"width": width, "height": 800})
    number = page.locator("#list [role=status]")
    for name, left in {
        "Reason: no majority ✕": "1 of 6",
        "Share: 60 to 70% ✕": "5 of 6",
        "Reached: with logons ✕": "5 of 6",
        "Status: no owner, conflict ✕": "6 of 6",
    }.items():
        number.get_by_role("link", name=name).click()
        expect(number).to_contain_text(left)
    expect(number).to_have_text("6 of 6")


@pytest.mark.parametrize("width", [1300, 1920])
def test_nothing_goes_below_the_header_in_however_many_lines_it_is(opened, width):
    names = [f"pc-{number}" for number in range(100)]
    logons = counts(*((name, "ann", 2) for name in names))
    html = report(
        logons, assets=hosts(*(host(name, name) for name in names)), instance="x" * 200, outcome="planned"
    )
    page = opened(html, "host=pc-90", viewport={"width": width, "height": 800})
    header, title = page.locator("body > header"), page.locator("#panel-title")
    expect(page.locator("#rows tr[aria-current]")).to_be_in_viewport()
    for place in (title, page.get_by_role("link", name="Close")):
        assert place.bounding_box()["y"] >= header.bounding_box()["y"] + header.bounding_box()["height"]
    for _ in range(40):
        page.keyboard.press("k")
    assert page.locator("#rows a:focus").bounding_box()["y"] >= header.bounding_box()["height"]


def test_hostile_names_run_nothing(opened):
    html = hostile_report(*HOSTILE)
    assert all(name.isprintable() for name in packed(html)["hosts"]["name"])
    page = opened(html)
    for view in ("hosts", "people", "users", "writes"):
        tab = page.locator(f"#views a[href='#view={view}']")
        tab.click()
        expect(tab).to_have_attribute("aria-current", "page")  # lists differ in their columns
        for head in page.locator("#rows th a").all():
            head.click()
        for name in HOSTILE:
            search(page, name[:50])
        search(page, "")
        page.locator("#rows tbody a").first.click()
        page.keyboard.press("Escape")
    assert page.answered == [page.url.partition("#")[0]]
    assert page.locator("img, iframe, [onload], [onfocus], [onmouseover]").count() == 0


def test_the_browser_refuses_what_is_not_the_page_s_own(opened):
    page = opened(standard())
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=pwned()>')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'pwned()'}))")
    assert page.evaluate("fetch('https://example.invalid').then(() => 'sent', () => 'refused')") == "refused"
    assert len(page.answered) == 1
    assert len(page.complaints) >= 3
    assert all("Content Security Policy" in text for text in page.complaints), page.complaints
    page.complaints.clear()


DARK = {"color_scheme": "dark"}


@pytest.mark.parametrize(
    ("outcome", "options"),
    [
        *(("written", options) for options in ({}, DARK, PHONE)),
        *(("planned", options) for options in ({}, DARK, {"forced_colors": "active"})),
    ],
)
def test_a_check_of_accessibility_finds_nothing(opened, outcome, options):
    page, panel = opened(standard(outcome), "view=users", **options), "complementary"
    for address in ("view=users", "status=no+owner&sort=share", "host=h2", "person=u1"):
        go(page, address)
        expect(page.get_by_role(panel)).to_be_visible(visible=address.startswith(("host", "person")))
        found = Axe().run(page)
        assert not found.violations_count, found.generate_report()
