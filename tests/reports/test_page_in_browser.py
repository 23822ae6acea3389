import csv
import io
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.ownership.builders import PEOPLE, counts, host, hosts, user, users
from tests.reports.test_page import packed, report

pytestmark = pytest.mark.slow  # also because the browser's library takes a second to import


MILLISECONDS = 120_000
"""How long a page may take, on a machine with much else to do."""

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
        page.set_default_timeout(MILLISECONDS)
        expect.set_options(timeout=MILLISECONDS)
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
    expect(head).to_have_attribute("aria-sort", "ascending")
    page.locator("#unmatched th", has_text="Logons").get_by_role("button").click()
    shows(page, "unmatched", 4, ["12", "8"])
    page.get_by_label("Search: Conflicts").fill("BOB pc-2")
    shows(page, "conflicts", 1, ["pc-2\nh2"])
    expect(page.locator("#conflicts [role=status]")).to_have_text("1 of 2")
    for words in ("PC-1 h1", "u1 h1", "ann@ gets h1"):
        page.get_by_label("Search: Hosts").fill(words)
        shows(page, "hosts", 1, ["pc-1\nh1"])
    assert page.answered == [page.url]


def test_each_number_opens_its_rows(opened):
    page = opened(report())
    links = page.locator("#funnel a, a[href='#hosts=host-assets']")
    expect(links).to_have_count(8 + 3 + 1)
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
    expect(page).to_have_url(re.compile("#person=u2$"))
    expect(page.locator("#hosts [role=status]")).to_contain_text("bob@corp.example: 2 of 6")
    shows(page, "hosts", 1, ["pc-2\nh2", "pc-4\nh4"])  # owned, and only used
    page.locator("#conflicts").get_by_role("link", name="pc-10").click()
    expect(page).to_have_url(re.compile("#host=pc-10$"))
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
    expect(page.locator("#writes tbody tr")).to_have_count(len(HOSTILE))
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
    page = opened(report(), **options)
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()
    assert page.get_by_label("Search: Hosts").bounding_box()["y"] < 500
