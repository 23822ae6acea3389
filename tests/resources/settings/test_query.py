"""Queries: what is Lucene syntax, what is KQL and how it is corrected, and the clauses of a query."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.settings.models import DEFAULT_QUERY
from resources.settings.presets import presets
from resources.settings.query import clauses_of, corrected_kql
from tests import examples

LUCENE = [
    DEFAULT_QUERY,
    *(preset.settings["query"] for preset in presets().values()),
    "*",
    "logon",
    "and",
    "NOT a:1",
    "code:(4624 OR 4625)",
    "code:(4624 4625)",  # alternatives of one field, as Lucene's own pages write them
    "a:(1 OR (2 AND NOT 3))",
    "a:[1 TO 5] AND b:{a TO b] AND c:[2026-01-01T00:00:00 TO *]",
    'a:["x and y" TO *] AND b:1',
    "age:(>=10 AND <20) AND size:>5 AND b:(+>=10 +<20)",
    "_exists_:x AND _exists_:y",
    r"process.name:C\:\\a\ b.exe AND a:1",
    r"a:x\ and\ y AND b:\(1",
    r'a:"x and \" or y" AND "not me"',
    "a:/a b/ AND /x and y/",
    r"a:/a\/b or c/",
    "+a:1 -b:2",
    "+a:1 +b:2",
    "a:1 -b:2 -c:3",
    "-b:2 a:1",
    "a:1 NOT b:2",
    "a:1 AND -b:2",
    "a:1 AND NOT b:2",
    "a:1 && !b:2",
    "(a:1 || b:2) && ! c:3",
    "a:and AND b:or",
    "event.code : 4624 AND x: y",
    'a:1^2 AND "b c"~5 AND (d:1 OR e:2)^3 AND f~',
    "\n a:1\n AND b:2\u3000AND\tc:3 ",
    "a://x.example",
    "a:(1",  # the service says why it is wrong
    "a:1)",
    '"a',
    "a:1 AND",
    "(" * 5_000,
]

KQL = {
    "a:1 and b:2": "a:1 AND b:2",
    "a:1 And b:2": "a:1 AND b:2",
    "a:1 AND b:2 c:3": "a:1 AND b:2 AND c:3",
    "a:1 b:2": "a:1 AND b:2",
    "(a:1 OR b:2) c:3": "(a:1 OR b:2) AND c:3",
    'a:"1" "b"': 'a:"1" AND "b"',
    "+a:1 b:2": "+a:1 AND b:2",
    "not a:1": "NOT a:1",
    "a:1 and not (b:2 or c:3)": "a:1 AND NOT (b:2 OR c:3)",
    "a:1 or (b:2 and c:3)": "a:1 OR (b:2 AND c:3)",
    "a:1 or b:2 and c:3": "a:1 OR (b:2 AND c:3)",
    "a:1 or not b:2": "a:1 OR (NOT b:2)",
    'event.code : 4624 and x: "y z"': 'event.code:4624 AND x:"y z"',
    "code:(4624 or 4625)": "code:(4624 OR 4625)",
    "code:(4624 not 4625)": "code:(4624 OR (NOT 4625))",
    "code:(1 AND 2 3)": "code:(1 AND 2 AND 3)",
    "a:1 and a:[1 TO 5] and b:/x y/": "a:1 AND a:[1 TO 5] AND b:/x y/",
    "process.name:My Tool.exe AND a:1": 'process.name:"My Tool.exe" AND a:1',
    "name:My T* and a:1": r"name:My\ T* AND a:1",
    "path:/var/log AND a:1": 'path:"/var/log" AND a:1',
    "a:1 and size >= 10": "a:1 AND size:[10 TO *]",
    "size<10": "size:[* TO 10}",
    "a:1 and size: > 5": "a:1 AND size:{5 TO *]",
}


@pytest.mark.parametrize("query", LUCENE)
def test_lucene_syntax_is_accepted(query):
    assert corrected_kql(query) is None


@pytest.mark.parametrize(("query", "corrected"), KQL.items())
def test_kql_is_corrected(query, corrected):
    assert corrected_kql(query) == corrected
    assert corrected_kql(corrected) is None


NAMES = ["a", "b", "c", "d"]


def _joined(parts):
    (left, lowest), operator, (right, also_lowest) = parts
    rank = {"or": 1, "and": 2}[operator]
    sides = [f"({text})" if needs < rank else text for text, needs in ((left, lowest), (right, also_lowest))]
    return f" {operator} ".join(sides), rank


def _negated(part):
    text, rank = part
    return f"not {text}" if rank == 3 else f"not ({text})", 2


TREES = st.recursive(
    st.sampled_from([(f"{name}:1", 3) for name in NAMES]),
    lambda trees: st.tuples(trees, st.sampled_from(["and", "or"]), trees).map(_joined) | trees.map(_negated),
    max_leaves=8,
)


@examples(200)
@given(TREES.filter(lambda tree: tree[1] < 3))
def test_a_correction_means_what_kql_means(tree):
    """Python has the precedence of KQL; in Lucene no level of the correction mixes AND with OR."""
    query, _ = tree
    corrected = corrected_kql(query)
    assert corrected is not None
    assert corrected_kql(corrected) is None
    level = corrected
    while level != (level := re.sub(r"\(([^()]*)\)", "x", level)):
        pass
    assert not (" AND " in level and " OR " in level)
    meant, said = (re.sub(r"(\w):1", r"\1", text) for text in (query, corrected.lower()))
    for number in range(2 ** len(NAMES)):
        values = {name: bool(number >> place & 1) for place, name in enumerate(NAMES)}
        assert eval(meant, {}, values) == eval(said, {}, values)  # noqa: S307  (text of this test)


@examples(300)
@given(
    st.lists(
        st.sampled_from([*' ab:()[]{}"/\\+-!*?<>=^~\u3000', " and ", " or ", "not ", " AND ", "OR"])
    ).map("".join)
)
def test_any_text_is_read_and_corrected_once(query):
    corrected = corrected_kql(query)
    assert corrected is None or corrected_kql(corrected) is None
    assert query.lstrip().startswith("{") or clauses_of(query)


@pytest.mark.parametrize(
    ("query", "clauses"),
    [
        (DEFAULT_QUERY, DEFAULT_QUERY.split(" AND ")),
        ("a:1 AND NOT b:(2 OR 3) && (c:4 OR d:5)", ["a:1", "NOT b:(2 OR 3)", "(c:4 OR d:5)"]),
        ("+a:1 -b:2", ["+a:1", "-b:2"]),
        ("a:1 OR b:2 AND c:3", ["a:1 OR b:2 AND c:3"]),
        ("*", ["*"]),
        ("a:(1", ["a:(1"]),
    ],
)
def test_clauses_of_lucene_syntax(query, clauses):
    assert clauses_of(query) == {text: {"query_string": {"query": text}} for text in clauses}


def test_clauses_of_query_dsl():
    one = {"bool": {"must_not": [{"term": {"b": 2}}]}}
    must = '"must": {"exists": {"field": "c"}}, "must_not": {"term": {"b": 2}}'
    query = f'{{"bool": {{"filter": [{{"term": {{"a": 1}}}}], {must}}}}}'
    assert list(clauses_of(query).values()) == [{"term": {"a": 1}}, {"exists": {"field": "c"}}, one]
    assert list(clauses_of('{"match_all": {}}')) == ['{"match_all": {}}']
