"""Which queries are KQL and what they mean in Lucene syntax, and the clauses of a query."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.settings.query import clauses, correct_query, describe_faults, detect_language


@pytest.mark.parametrize(
    "query",
    [
        "event.code:4624 AND event.outcome:success AND process.name:svchost.exe",
        "*",
        "svchost.exe",
        "event.action:and",
        'message:"this and that" AND NOT "or not"',
        'message:"a \\" and b" AND c:1',
        "event.code:[4624 TO 4625}",
        '@timestamp:["2026-01-01 00:00" TO now] AND event.code:4624',
        "event.code:(4624 OR 4625)",
        "(event.code:4624 OR event.code:4625)^2 AND user.name:*",
        "_exists_:user.name AND NOT user.name:*$",
        "user.name:John\\ Smith",
        "user.name:/[a-z] (and|or) \\/x/ AND event.code:4624",
        "+event.code:4624 +event.outcome:success -user.name:SYSTEM",
        "event.code:4624 -user.name:SYSTEM !host.name:x",
        "event.code:4624 NOT user.name:SYSTEM",
        "event.code:4624 && (a:1 || b:2) && !c:3",
        "event.code : 4624 AND port:>=10 AND port:(>=10 AND <20)",
        '"a phrase"~2 AND x:roam~1 AND y:z^2',
        "source.ip:fe80\\:\\:1 OR (NOT a:1)",
        "from AND url.query:(x=1 OR y=2)",
        'event.code:"4624',
        "event.code:4624 AND",
        "event.code:4624 OR NOT ",
        "(event.code:4624 AND)",
        "(event.code:4624",
        "a:1)",
        "(" * 20_000,
        "",
    ],
)
def test_lucene_syntax_and_what_is_neither_pass(query):
    assert (detect_language(query), correct_query(query)) == (None, None)


@pytest.mark.parametrize(
    ("query", "lucene"),
    [
        ("event.code:4624 and event.outcome:success", "event.code:4624 AND event.outcome:success"),
        ("event.code:4624 event.outcome:success", "event.code:4624 AND event.outcome:success"),
        ('event.code : 4624 and m : "x and y"', 'event.code:4624 AND m:"x and y"'),
        ("a:1 And Not b:2", "a:1 AND NOT b:2"),
        ("a:1 not b:2", "a:1 AND NOT b:2"),
        ("not a:1", "NOT a:1"),
        ("and", '"and"'),
        ("a:1 AND and", 'a:1 AND "and"'),
        ("user.name:(ann or)", 'user.name:(ann OR "or")'),
        ("not a:1 or b:2", "(NOT a:1) OR b:2"),
        ("a:1 OR NOT b:2", "a:1 OR (NOT b:2)"),
        ("a:1 AND b:2 OR c:3 AND !d:4", "(a:1 AND b:2) OR (c:3 AND NOT d:4)"),
        ("a:1 -b:2 c:3", "a:1 AND NOT b:2 AND c:3"),
        ("+a:1 b:2", "a:1 AND b:2"),
        ("a:1\u00a0AND b:2", "a:1 AND b:2"),
        ("a:1 AND ! b:2 &&c:3", "a:1 AND NOT b:2 AND c:3"),
        ("a:1 or b:2 and c:3", "a:1 OR (b:2 AND c:3)"),
        ("a:1 and (b:2 or c:3)", "a:1 AND (b:2 OR c:3)"),
        ("(a:1 b:2) AND c:3", "(a:1 AND b:2) AND c:3"),
        ("a:1 AND b:2 c:3", "a:1 AND b:2 AND c:3"),
        ("event.code:(4624 or 4625)", "event.code:(4624 OR 4625)"),
        ("event.code:(4624 4625)", "event.code:(4624 OR 4625)"),
        ("a:(not 4625)", "a:(NOT 4625)"),
        ("user.name:John Q Smith and b:2", 'user.name:"John Q Smith" AND b:2'),
        ("user.name:John Sm*", "user.name:John\\ Sm*"),
        ("file.path:/usr/bin and b:x!y", 'file.path:"/usr/bin" AND b:"x!y"'),
        ("logon failure", "logon AND failure"),
        ("port >= 10 and port:< 20", "port:>=10 AND port:<20"),
        (
            '@timestamp >= "2026-01-01T00:00" and port<"9"',
            '@timestamp:["2026-01-01T00:00" TO *] AND port:{* TO "9"}',
        ),
    ],
)
def test_kql_and_clauses_without_an_operator_are_corrected(query, lucene):
    assert correct_query(query) == lucene


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("a:1 and b:2 AND not c:3", "writes and in small letters and writes not in small letters"),
        ("a:1 b:2", "has clauses or values without an operator between them"),
        ("a:1 AND b:2 OR NOT c:3", "mixes OR and AND without brackets"),
        ("a:1 OR NOT b:2", "mixes OR and NOT or + without brackets"),
        ("user.name:John Smith", "has several words or a path without quotes"),
        ("port>=10", "has a comparison without a colon"),
        ("port:< 10", "has a blank or quotes after < or >"),
        ("a:1 &&b:2", "has && where Lucene takes no operator"),
        ("a:1\u00a0AND b:2", "has a blank of another kind than Lucene's"),
        ("a:1 AND b:2", ""),
    ],
)
def test_of_the_faults_of_a_query_those_that_it_has_are_named(query, fault):
    assert describe_faults(query) == fault


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("SELECT * FROM logs WHERE event.code = '4624'", "SQL"),
        ("select user.name\nfrom logs\nwhere event.code=4624", "SQL"),
        ('FROM logs-* | WHERE event.code == "4624"', "ES|QL"),
        ("from logs-*", "ES|QL"),
        ('any where event.code == "4624"', "EQL"),
        ("sequence by host.id [any where event.code : 4624]", "EQL"),
        ("event.code == 4624", "another"),
        ("event.code:4624 AND NOT user.name='SYSTEM'", "another"),
        ("event.code != 4625", "another"),
        ("event.code <> 4625", "another"),
        ("event.code IN (4624, 4625)", "another"),
        ("event.code:4624 AND user.name LIKE 'a%'", "another"),
        ("event.code:4624 | stats count()", "another"),
    ],
)
def test_other_languages_are_named(query, language):
    assert str(detect_language(query)).startswith(language)


TERMS = st.sampled_from(["a:1", 'b:"x or y"', "c:[1 TO 2]", "d:*", "e:/f g/", "h:(1 2)"])
QUERIES = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or", "AND", "OR", "&&", ""]), inner).map(" ".join),
        inner.map("not {}".format),
        inner.map("({})".format),
    ),
    max_leaves=8,
)


@given(QUERIES)
def test_what_is_corrected_is_right_and_keeps_its_terms(query):
    lucene = correct_query(query)
    if lucene is None:
        assert not {"and", "or", "not"} & set(query.replace('b:"x or y"', "").replace("(", " ").split())
    else:
        assert correct_query(lucene) is None
        assert [lucene.count(term) for term in ("a:1", "d:*")] == [query.count(t) for t in ("a:1", "d:*")]


@given(st.text(alphabet='ab:()[]{}"/\\ +-!&|<>*~^\tANDORnot', max_size=30))
def test_any_text_can_be_read(query):
    assert correct_query(query) != query
    assert clauses("x" + query) is not None


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("a:1 AND (b:2 OR c:3) AND NOT d:4", ["a:1", "(b:2 OR c:3)", "NOT d:4"]),
        ("+a:1 -b:2", ["a:1", "NOT b:2"]),
        ("a:1 OR b:2", []),
        ("a:1", []),
        ('{"bool": {"filter": {"term": {"a": 1}}, "must_not": [{"term": {"b": 1}}]}}',
         ['{"term": {"a": 1}}', 'not {"term": {"b": 1}}']),
        ('{"bool": {"should": [{"term": {"a": 1}}, {"term": {"b": 1}}]}}', []),
        ('{"term": {"a": 1}}', []),
    ],
)  # fmt: skip
def test_the_clauses_that_must_all_match(query, texts):
    assert list(clauses(query)) == texts
