"""Queries of the instance file: which ones are KQL, and of which clauses a query consists.

Kibana's search bar writes KQL: `and`, `or`, `not` in any case, and values of several words. Lucene takes such
an `and` for a word to search for, and clauses without an operator for alternatives: nothing fails, and other
events are counted.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 50
"""Parentheses within each other; a query with more is not looked into."""

_BLANKS = re.compile(r"[\s\u3000]*")
_WORD = re.compile(r'(?:\\.|[^\s\u3000\\()\[\]{}":])+', re.DOTALL)
_SINGLE = re.compile(
    r'"(?:\\.|[^"\\])*"'  # a phrase
    r'|[\[{](?:"(?:\\.|[^"\\])*"|\\.|[^"\\\]}])*[\]}]'  # a range
    r"|/(?:\\.|[^/\\])+/"  # a regular expression
    rf"|{_WORD.pattern}",
    re.DOTALL,
)
_SUFFIX = re.compile(r"(?:[~^][\d.]*)*")
_COMPARISON = re.compile(r"([^<>=]*)([<>]=?)(.*)", re.DOTALL)
_OPERATORS = {"AND": "AND", "&&": "AND", "OR": "OR", "||": "OR"}
_RANGES = {">": "{{{} TO *]", ">=": "[{} TO *]", "<": "[* TO {}}}", "<=": "[* TO {}]"}


class _UnreadableError(Exception):
    """The text is not in Lucene syntax; the search service says where."""


@dataclass
class _Clause:
    operator: str | None  # the one before it
    modifier: str  # "+", "-", "NOT" or ""
    field: str = ""
    value: "str | _Group" = ""
    suffix: str = ""
    text: str = ""  # as it was written, without the operator

    @property
    def negative(self) -> bool:
        return self.modifier in {"-", "NOT"}

    def corrected(self) -> str:
        name = f"{self.field}:" if self.field else ""
        value = self.value if isinstance(self.value, str) else f"({self.value.corrected()})"
        return f"{self.modifier}{' ' * (self.modifier == 'NOT')}{name}{value}{self.suffix}"


@dataclass
class _Group:
    """Clauses side by side; `of_field`: values of one field, which alternatives are often written for."""

    clauses: list[_Clause]
    of_field: bool

    @property
    def _default(self) -> str:
        return "OR" if self.of_field and all(one.operator != "AND" for one in self.clauses) else "AND"

    def lacks_operator(self) -> bool:
        """Whether a clause that Lucene makes optional stands beside another one without an operator."""
        if self._default == "OR":
            return False
        positive = [one for one in self.clauses if not one.negative]
        required = all(one.modifier == "+" for one in positive)
        return not required and any(one.operator is None for one in positive[1:])

    def corrected(self) -> str:
        """Lucene text of the clauses, with AND before OR, as in KQL."""
        alternatives: list[list[_Clause]] = []
        for one in self.clauses:
            if not alternatives or (one.operator or self._default) == "OR":
                alternatives.append([])
            alternatives[-1].append(one)
        texts = [" AND ".join(one.corrected() for one in each) for each in alternatives]
        if len(texts) == 1:
            return texts[0]
        # Lucene has no precedence, and beside OR it excludes what NOT names from the other clauses as well.
        simple = [len(each) == 1 and not each[0].negative for each in alternatives]
        return " OR ".join(text if alone else f"({text})" for text, alone in zip(texts, simple, strict=True))


class _Parser:
    """Reads a query; `kql` becomes true where Lucene would read it otherwise than it is meant."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kql = False

    def parse(self) -> _Group:
        group = self._group(of_field=False, depth=0)
        if self.at < len(self.text):
            raise _UnreadableError
        return group

    def _group(self, *, of_field: bool, depth: int) -> _Group:
        if depth > MAX_DEPTH:
            raise _UnreadableError
        clauses: list[_Clause] = []
        while self._next() not in {"", ")"}:
            operator = self._operator() if clauses else None
            self._next()
            start = self.at
            clause = _Clause(operator, self._modifier())
            self._operand(clause, of_field=of_field, depth=depth)
            clause.text = self.text[start : self.at]
            clauses.append(clause)
        if not clauses:
            raise _UnreadableError
        group = _Group(clauses, of_field)
        self.kql |= group.lacks_operator()
        return group

    def _operand(self, clause: _Clause, *, of_field: bool, depth: int) -> None:
        """Read the rest of a clause behind its modifier."""
        word = "" if self._next() in {"", "/"} else self._peek(_WORD)
        end = self.at + len(word)
        if word and self._peek_behind(end) == ":":
            clause.field = word
            self.at = self.text.index(":", end) + 1
            of_field = True
            if self._next() != "(":
                clause.value = self._field_value()
                return
        elif word and not of_field and (compared := self._comparison(word)):
            clause.field, clause.value = compared
            return
        if self._next() == "(":
            self.at += 1
            clause.value = self._group(of_field=of_field, depth=depth + 1)
            if self._next() != ")":
                raise _UnreadableError
            self.at += 1
            clause.suffix = self._take(_SUFFIX)
        else:
            clause.value = self._single()

    def _next(self) -> str:
        """Skip blanks and return the character behind them, "" at the end."""
        self._take(_BLANKS)
        return self.text[self.at : self.at + 1]

    def _peek(self, pattern: re.Pattern[str], at: int | None = None) -> str:
        found = pattern.match(self.text, self.at if at is None else at)
        return found[0] if found else ""

    def _peek_behind(self, at: int) -> str:
        at += len(self._peek(_BLANKS, at))
        return self.text[at : at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = self._peek(pattern)
        self.at += len(found)
        return found

    def _single(self) -> str:
        """Read a phrase, a range, a regular expression or a word."""
        if not (found := self._take(_SINGLE)):
            raise _UnreadableError
        return found + self._take(_SUFFIX)

    def _is_kql_word(self, word: str) -> bool:
        """Whether a word that Lucene searches for is meant as an operator: a clause follows it."""
        end = self.at + len(word)
        at = end + len(self._peek(_BLANKS, end))
        return self._peek_behind(end) not in {"", ")", ":"} and self._peek(_WORD, at) not in _OPERATORS

    def _operator(self) -> str | None:
        word = self._peek(_WORD)
        kql = word.upper() in {"AND", "OR"} and word not in _OPERATORS and self._is_kql_word(word)
        if not kql and word not in _OPERATORS:
            return None
        self.kql |= kql
        self.at += len(word)
        return _OPERATORS[word.upper()]

    def _modifier(self) -> str:
        word = self._peek(_WORD)
        if word[:1] in {"+", "-", "!"}:
            self.at += 1
            return "NOT" if word[0] == "!" else word[0]
        kql = word.upper() == "NOT" and word != "NOT" and self._is_kql_word(word)
        if not kql and word != "NOT":
            return ""
        self.kql |= kql
        self.at += len(word)
        return "NOT"

    def _field_value(self) -> str:
        """Read what a field's colon is followed by; words with blanks between are one value in KQL."""
        if (sign := self._peek(_WORD)) in _RANGES:
            self.at += len(sign)
            return self._range(sign, "")
        start, word = self.at, self._peek(_WORD)
        value = self._single()
        end = self.at
        if word and value != word:  # a path such as /var/log, of which Lucene takes /var/ for an expression
            end += len(self._take(_WORD))
        while word and (further := self._further_word()):
            self.at += len(further)
            end = self.at
        self.at = end
        whole = self.text[start:end]
        if whole == value:
            return value
        self.kql = True
        if re.search(r"[*?\\]", whole):  # a phrase has no wildcards
            return re.sub(r"(?<!\\)\s", r"\\ ", whole)
        return f'"{whole}"'

    def _further_word(self) -> str:
        """Skip blanks and return the next word, "" where another clause begins."""
        self._next()
        word = self._peek(_WORD)
        operator = word.upper() in {*_OPERATORS, "NOT"} or word[:1] in {"+", "-", "!", "/", "<", ">"}
        return "" if operator or self._peek_behind(self.at + len(word)) in {":", "<", ">"} else word

    def _comparison(self, word: str) -> tuple[str, str] | None:
        """Read a comparison of KQL, such as `size >= 10`, and return field and range; None if it is none."""
        name, end = "", self.at + len(word)
        if self._peek_behind(end) in {"<", ">"}:
            name, end = word, end + len(self._peek(_BLANKS, end))
            word = self._peek(_WORD, end)
            end += len(word)
        found = _COMPARISON.fullmatch(word)
        if not found or bool(name) == bool(found[1]):
            return None
        self.at = end
        return name or found[1], self._range(found[2], found[3])

    def _range(self, sign: str, value: str) -> str:
        self.kql = True
        self._next()
        return _RANGES[sign].format(value or self._single())


def corrected_kql(query: str) -> str | None:
    """Return a query that was written as KQL in Lucene syntax; None if it is Lucene syntax already.

    Also None for a text that cannot be read, which the search service refuses with the place of the fault.
    """
    parser = _Parser(query.strip())
    try:
        group = parser.parse()
    except _UnreadableError:
        return None
    return group.corrected() if parser.kql else None


def clauses_of(query: str) -> dict[str, dict[str, Any]]:
    """Return the clauses that a document must fulfil all, as query DSL by their text.

    They are those of AND in Lucene syntax, and those of `filter`, `must` and `must_not` of a `bool` in query
    DSL. A query without such clauses is the only one.
    """
    if query.lstrip().startswith("{"):
        return _dsl_clauses(json.loads(query))
    texts = [query.strip()]
    try:
        group = _Parser(texts[0]).parse()
    except _UnreadableError:
        group = _Group([], of_field=False)
    if all(one.operator != "OR" for one in group.clauses):
        texts = [one.text for one in group.clauses] or texts
    return {text: {"query_string": {"query": text}} for text in texts}


def _dsl_clauses(query: dict[str, Any]) -> dict[str, dict[str, Any]]:
    parts: Any = query.get("bool")
    if not isinstance(parts, dict):
        parts = {}
    found = []
    for kind in ("filter", "must", "must_not"):
        each = parts.get(kind, [])
        listed = each if isinstance(each, list) else [each]
        found += [{"bool": {"must_not": [one]}} for one in listed] if kind == "must_not" else listed
    return {json.dumps(one): one for one in found or [query]}
