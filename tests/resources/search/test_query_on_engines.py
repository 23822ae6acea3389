"""The reader of queries against both engines: random queries over a small index, many in one request."""

import json
from itertools import product
from random import Random

import pytest

from resources.settings.query import _Reader, _text, correct_query, detect_language

pytestmark = pytest.mark.slow

INDEX = "logs-query-reader"
DOCUMENTS = {
    "".join(values): dict(zip("abc", (values[0], values[1], NAME), strict=True))
    for values in product("012", "012", "JPX")
    for NAME in [{"J": "John Smith", "P": "x/y/z", "X": "x!"}[values[2]]]
}
ALL = frozenset(DOCUMENTS)
BLANKS = [*[" "] * 40, "  ", "\t", "\n", "\u3000", "\u00a0"]
NEGATIONS = [*["NOT "] * 6, "not ", "Not ", "-", "!", "! ", "- ", "NOT\u00a0"]
OPERATORS = [*["AND", "OR"] * 2, "and", "or", "&&", "||", "", ""]
TOKENS = [
    *"()()+-!1*<0x=\\ \t\u3000\u00a0",
    *("AND ", " AND ", " OR ", "NOT ", " NOT ", " and ", "or ", "not ", "&&", " || ", " ", " ", "a : ", "b:"),
    *(
        "a:1",
        "b:1",
        " a:0",
        " -b:1",
        " !b:0",
        "+a:1",
        'a:"1"',
        "[1 TO 2]",
        "/1/",
        "^2",
        "~1",
        "a:>1",
        "a:>=",
        "a:(1 2)",
    ),
]


def having(field, *values):
    return frozenset(name for name, document in DOCUMENTS.items() if document[field] in values)


def clause(random):
    """Return a clause and the documents that a person means by it."""
    field, one, other = random.choice("ab"), random.choice("012"), random.choice("012")
    at_least = having(field, *"012"[int(one) :])
    return random.choice(
        [
            (f"{field}:{one}", having(field, one)),
            (f'{field} : "{one}"', having(field, one)),
            (f"{field}:/[{one}{other}]/", having(field, one, other)),
            *((f"{field}:({one}{word}{other})", having(field, one, other)) for word in (" OR ", " or ", " ")),
            *((f"{field}:({word}{one})", ALL - having(field, one)) for word in ("NOT ", "not ", "-")),
            *((f"{field}{bound}{one}", at_least) for bound in (":>=", ":>= ", " >= ", ">=")),
            (f'{field} >= "{one}"', at_least),
            (f"{field}:[{one} TO 2]^2", at_least),
            (f"{field} < {one}", ALL - at_least),
            (f'{field}:"{one} and {other}"', frozenset()),
            *(
                (f"c:{name}", having("c", "John Smith"))
                for name in ("John Smith", '"John Smith"', "John Sm*")
            ),
            ("c:x/y/z", having("c", "x/y/z")),
            ("c:x!y", frozenset()),
            ("*:*", ALL),
        ]
    )


def level(random, depth=0):
    """Return clauses beside each other, without brackets, and the documents that a person means by them."""
    text, alternatives = "", [ALL]
    operators = random.choice([OPERATORS, ["AND"], ["OR"]])
    for number in range(random.choice([1, 2, 2, 3, 3, 4])):
        if inner := depth < 3 and random.random() < 0.2:
            one, found = level(random, depth + 1)
        else:
            one, found = clause(random)
        if random.random() < 0.25:
            one, found = f"{random.choice(NEGATIONS)}{f'({one})' if inner else one}", ALL - found
        elif inner:
            one = f"({one})"
        operator = random.choice(operators) if number else ""
        text += f"{random.choice(BLANKS)}{operator}" + random.choice(BLANKS) * bool(operator) + one
        if operator.lower() in {"or", "||"}:
            alternatives.append(found)
        else:
            alternatives[-1] &= found
    return text, frozenset().union(*alternatives)


@pytest.fixture(params=["engine", "elasticsearch"])
def search(request):
    """Return what each of some queries finds; None where the engine refuses it."""
    engine = request.getfixturevalue(request.param)
    properties = {field: {"type": "keyword"} for field in "abc"}
    engine.load(INDEX, {"mappings": {"properties": properties}}, [])
    lines = "".join(f'{{"index": {{"_id": "{n}"}}}}\n{json.dumps(d)}\n' for n, d in DOCUMENTS.items())
    engine.add(INDEX, lines)
    engine.request("POST", f"{INDEX}/_refresh")

    def found(queries):
        wanted = [{"size": len(ALL), "query": {"query_string": {"query": query}}} for query in queries]
        body = "".join(f"{{}}\n{json.dumps(each)}\n" for each in wanted)
        headers = {"Content-Type": "application/x-ndjson"}
        answers = engine.request("POST", f"{INDEX}/_msearch", data=body, headers=headers)["responses"]
        return [
            frozenset(hit["_id"] for hit in answer["hits"]["hits"]) if "hits" in answer else None
            for answer in answers
        ]

    return found


def test_a_query_that_passes_and_a_corrected_one_find_what_a_person_means(search):
    random = Random(7)  # noqa: S311
    meant = dict(level(random) for _ in range(1000))
    assert sum(correct_query(query) is None for query in meant) > 50
    found = search([correct_query(query) or query for query in meant])
    assert [query for query, some in zip(meant, found, strict=True) if some != meant[query]] == []


def test_whatever_passes_is_read_as_the_engine_reads_it(search):
    """Of random tokens: the clauses that were read, written out again with brackets, find the same."""
    random = Random(7)  # noqa: S311
    texts = ["".join(random.choices(TOKENS, k=random.randint(2, 5))) for _ in range(4000)]
    read = {
        text: _Reader(text).read() for text in texts if not (correct_query(text) or detect_language(text))
    }
    passing = {text: _text(some) for text, some in read.items() if some}
    found = zip(passing, search(passing), search(passing.values()), strict=True)
    answered = [(query, before, after) for query, before, after in found if before is not None]
    assert len(answered) > 100
    assert [query for query, before, after in answered if before != after] == []
