import base64
import html
import json
import unicodedata
from datetime import date
from urllib.parse import quote, quote_plus, urlencode

import pytest

from resources.errors import ConfigurationError, ServiceError
from resources.inventory.session import LOGIN, MFA
from resources.redaction import redact, redact_start
from resources.search import logons as search_client
from resources.search.logons import SearchClient
from sandbox.inventory import Account
from tests.resources.http_stub import Reply, Stub, envelope
from tests.resources.inventory_world import SECRET as MFA_SECRET
from tests.resources.samples import instance
from tests.resources.search.test_client import PAGE, answered, error, pairs

SECRET = "pä\"ss\\wörd <tag> & 100%41 +/'🦊"


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        SECRET.upper(),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        urlencode({"password": SECRET}),
        html.escape(SECRET),
        html.escape(SECRET, quote=False),
        "".join(f"&#{ord(letter)};" for letter in SECRET),
        "".join(f"&#x{ord(letter):X};" for letter in SECRET),
        html.escape(SECRET).replace("&#x27;", "&#039;"),
        unicodedata.normalize("NFD", SECRET),
        SECRET.encode().decode("latin-1"),
        SECRET.encode("latin-1", "replace").decode("utf-8", "replace"),
        str(SECRET.encode())[2:-1],
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        SECRET.replace("'", "\\'"),
    ],
)
def test_a_secret_is_hidden_however_it_is_written(written):
    shown = redact(f"It said: {written}.", [SECRET])
    assert "***" in shown
    assert shown.removeprefix("It said: ").strip('."').removeprefix("password=") == "***"


def test_the_rest_of_a_text_stays_as_it_is():
    assert redact("The code 123456 is wrong (100%).", ["654321", ""]) == "The code 123456 is wrong (100%)."


def test_a_secret_that_holds_another_is_hidden_whole_and_one_with_blanks_around_it_without_them():
    assert redact("user:word user", ["user", "user:word"]) == "*** ***"
    assert redact("wrong password: s3cret!", ["s3cret!  "]) == "wrong password: ***"


@pytest.mark.parametrize("write", [str, quote, html.escape, json.dumps], ids=lambda write: write.__name__)
@pytest.mark.parametrize("length", [1, 200])
def test_a_text_that_is_cut_shows_no_part_of_a_secret(write, length):
    for before in (0, *range(length - 12, length + 12), *range(3 * length - 40, 3 * length + 40)):
        for times in (1, 50):
            text = "x" * before + write(SECRET).strip('"') * times + "y" * 1000
            shown = redact_start(text, [SECRET, "another"], length)
            assert len(shown) <= length
            assert set(shown) <= {"x", "*", "y"}


WRITINGS = [str, quote_plus, html.escape, json.dumps]
PAGES = {
    "a page": lambda text: Reply(f"<html>{text}".encode()),
    "a failure": lambda text: Reply(f"<html>{text}".encode(), 502),
    "a message": lambda text: envelope(status=False, message=text),
    "a rejection": lambda text: envelope(status=False, message=text, http=422),
    "field detail": lambda text: envelope(status=False, message="No.", errors={"sent": [text]}),
    "a field": lambda text: envelope(status=False, message="No.", errors={text: ["what is this?"]}),
    "a redirect": lambda text: Reply(status=302, headers={"Location": f"https://x.example/?{quote(text)}"}),
}
COOKIE = "cookie-of-the-session"
DAY = date(2026, 3, 1)


def message_of(call, secrets):
    """What an error says, in its words and in what it carries; some secret was there, and none is."""
    with pytest.raises(ServiceError) as raised:
        call()
    message = f"{raised.value} {vars(raised.value)}"
    assert "***" in message
    assert [secret for secret in secrets if secret in message] == []
    return message


@pytest.mark.parametrize("path", [LOGIN, MFA, "/api/v1/x"])
@pytest.mark.parametrize("page", PAGES)
def test_what_the_inventory_service_repeats_of_a_request_is_hidden(served, path, page):
    account = Account("coded@corp.example", SECRET, mfa_secret=MFA_SECRET)
    sent = []

    def service(request):
        sent.extend([*request.cookies.values(), *request.form.values()])
        if request.path != path:
            return envelope({"mfa_required": True}, headers={"Set-Cookie": f"session={COOKIE}; Path=/"})
        secrets = [*request.cookies.values(), request.form.get("password", ""), request.form.get("code", "")]
        writings = WRITINGS[:1] if page == "a redirect" else WRITINGS
        return PAGES[page](" ".join(write(secret) for secret in secrets for write in writings))

    with served(service, account) as (_, inventory):
        message = message_of(
            lambda: inventory.get("/api/v1/x"), [SECRET, COOKIE, quote_plus(SECRET), html.escape(SECRET)]
        )
    codes = [text for text in sent if text.isdecimal()]
    assert bool(codes) == (path != LOGIN)
    assert not any(code in message for code in codes)


@pytest.mark.parametrize("page", ["a page", "a failure", "a redirect", "an error"])
def test_what_the_search_service_repeats_of_a_request_is_hidden(monkeypatch, page):
    monkeypatch.setenv("SEARCH_PASSWORD", SECRET)
    monkeypatch.setenv("TEAM_COOKIE", COOKIE)
    token = base64.b64encode(f"owner-search:{SECRET}".encode()).decode()

    def service(request):
        assert request.headers["Authorization"] == f"Basic {token}"
        said = f"{token} {SECRET} {'; '.join(request.cookies.values())}"
        return error("security_exception", said, 401) if page == "an error" else PAGES[page](said)

    with (
        Stub(service) as stub,
        SearchClient(
            instance(url=stub.url, cookies={"team": {"env": "TEAM_COOKIE"}}), sleep=lambda _: None
        ) as search,
    ):
        message_of(lambda: search.totals(DAY, DAY), [token, SECRET, COOKIE, quote(SECRET)])


@pytest.mark.parametrize("write", WRITINGS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("page", [page for page in PAGES if page != "a redirect"])
def test_a_refused_update_is_reported_without_the_person_whom_it_was_to_set(served, page, write):
    """The message of a failed write is stored in owner_writes and logged."""
    values = {"owner": "jörg.mayer@corp.example", "department": "Mayer & Söhne", "criticality": "9"}

    def service(request):
        if request.path == LOGIN:
            return envelope()
        return PAGES[page](", ".join(write(value) for value in request.form.values()) + " in 1999")

    with served(service) as (_, inventory):
        message = message_of(
            lambda: inventory.write("h-1", values, right_before=lambda: None),
            [*map(write, [values["owner"], values["department"]]), "jörg", "Söhne"],
        )
    assert "in 1999" in message.replace("+", " "), "a short value takes no letters out of other words"
    assert " 9" not in message


def test_names_of_an_after_key_that_a_search_repeats_are_hidden(monkeypatch):
    monkeypatch.setattr(search_client, "MAX_PAGE", 1)
    user = "CORP\\jörg"
    page = PAGE | {"aggregations": pairs(user, after=user)}

    def service(request):
        if not json.loads(request.body)["aggs"]["pairs"]["composite"].get("after"):
            return answered(page)
        return error("illegal_argument_exception", f"cannot parse [{user}]", 400)

    hidden = pytest.raises(ConfigurationError, match=r"cannot parse \[\*\*\*\]")
    with Stub(service) as stub, SearchClient(instance(url=stub.url)) as search, hidden:
        list(search.logons([DAY]))


@pytest.mark.parametrize("status", [200, 502])
def test_a_session_that_an_answer_repeats_beside_its_cookie_is_hidden(served, status):
    answer = Reply(f'{{"token": "{COOKIE}"}}'.encode(), status, {"Set-Cookie": f"session={COOKIE}; Path=/"})
    with served(lambda _: answer) as (_, inventory):
        message_of(lambda: inventory.get("/api/v1/x"), [COOKIE])


def test_a_short_cookie_takes_no_letters_out_of_messages(served):
    def service(request):
        if request.path == LOGIN:
            return envelope(headers={"Set-Cookie": "language=e; Path=/"})
        return envelope(status=False, message="Come back later.")

    with served(service) as (stub, inventory):
        with pytest.raises(ServiceError, match=r"Come back later\."):
            inventory.get("/api/v1/x")
        assert stub.requests[-1].cookies == {"language": "e"}
