import ssl

import pytest
import trustme

from resources.findings import reached
from tests.resources.http_stub import Reply, Stub


def told(url):
    [*_, last] = reached("search service", "", url, "GET", "/", ignore_ssl=True, ca_file=None)
    return last.state, last.text


def test_http_to_a_port_with_tls_and_the_converse_are_told_apart():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with Stub(lambda _: Reply(), tls=context) as secure:
        state, text = told(secure.url.replace("https", "http"))
    assert (state, "speaks TLS; write https:// in url" in text) == ("wrong", True)
    with Stub(lambda _: Reply()) as plain:
        state, text = told(plain.url.replace("http", "https"))
    assert (state, "speaks HTTP without TLS; write http:// in url" in text) == ("wrong", True)


@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_that_names_https_is_one_where_nothing_speaks_tls(status):
    with Stub(lambda _: Reply(b"see https://corp.example", status)) as plain:
        assert told(plain.url)[0] == "ok"
