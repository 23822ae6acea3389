"""Reads the text of a query: whether it is KQL instead of Lucene syntax, and its clauses (rules 3.2)."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

_PHRASE = r'"(?:\\.|[^"\\])*"'
_BOOST = r"(?:[~^][\d.]*)*"
_VALUE = (
    rf'(?:{_PHRASE}|/(?:\\.|[^/\\])+/|[\[{{](?:{_PHRASE}|\\.|[^\]}}"\\])*[\]}}]|(?:\\.|[^\s()"\\:])(?:\\.|[^\s()"\\])*)'
    rf"{_BOOST}"
)
_NAME = r'(?:\\.|[^\s()"\[\]{}:\\/<>=!+-])(?:\\.|[^\s()"\[\]{}:\\/<>=])*'
_GOES_ON = r"(?!\s*(?:[):]|$))"
_CLAUSE = re.compile(
    rf"(?P<prefix>(?:(?:[+-]|(?:NOT(?=[\s()])|!){_GOES_ON})\s*)*+)"
    rf"(?:(?P<name>{_NAME})\s*(?P<sign>:|[<>]=?)\s*)?+"
    rf'(?:(?P<group>\()|(?P<value>(?:[<>]=?(?:\s+|(?=")))?{_VALUE}))',
    re.DOTALL | re.IGNORECASE,
)
_OPERATOR = re.compile(rf"(?:(?:AND|OR)(?=[\s()])|&&|\|\|){_GOES_ON}\s*", re.IGNORECASE)
_BLANKS = re.compile(r"\s*")
_GROUP_END = re.compile(rf"\)({_BOOST})")
_NAMED = {"&&": "AND", "||": "OR", "!": "NOT ", "NOT": "NOT "}


@dataclass
class _Clause:
    """One clause: its prefix (`+`, `-`, `NOT`), the field with its colon, and a value or a group."""

    prefix: str
    field: str
    value: str = ""
    group: "_Level | None" = None

    @property
    def is_word(self) -> bool:
        return not self.group and self.value[:1] not in {'"', "/", "[", "{", "<", ">"}


@dataclass
class _Level:
    """Clauses beside each other, and what stands between each and the next: `AND`, `OR` or nothing."""

    of_field: bool
    clauses: list[_Clause] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)


class _Reader:
    """Reads Lucene syntax with the operators of KQL as well; `is_kql` says whether it met any."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.is_kql = False

    def read(self) -> _Level | None:
        """Return the clauses; None where the text is neither: the search service will say what is wrong."""
        with suppress(ValueError, RecursionError):
            level = self._level(of_field=False)
            if self.at == len(self.text) and level.clauses:
                return level
        return None

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def _normalise_operator(self, operator: str) -> str:
        name = operator.upper()
        self.is_kql |= operator != name
        return _NAMED.get(name, name)

    def _level(self, *, of_field: bool) -> _Level:
        level = _Level(of_field)
        while self._take(_BLANKS) and self.text[self.at : self.at + 1] not in {"", ")"}:
            operator = ""
            if level.clauses:
                found = self._take(_OPERATOR)
                operator = self._normalise_operator(found[0].strip()) if found else ""
                level.operators.append(operator)
            clause = self._clause()
            # Lucene takes either of two such clauses, and of no prefix at all beside `+` none.
            if level.clauses and not (operator or of_field or clause.prefix or level.clauses[-1].prefix):
                self.is_kql = True
            level.clauses.append(clause)
        return level

    def _clause(self) -> _Clause:
        found = self._take(_CLAUSE)
        if not found:
            raise ValueError(f"no clause at {self.at}")
        prefix = "".join(map(self._normalise_operator, re.findall(r"[+-]|!|\w+", found["prefix"])))
        name = ""
        if found["name"]:
            bound = found["sign"].removeprefix(":")
            name = f"{found['name']}:{bound}"
            self.is_kql |= bool(bound)
        if found["value"]:
            return _Clause(prefix, name, re.sub(r"^([<>]=?)\s+", r"\1", found["value"]))
        group, end = self._level(of_field=bool(name)), self._take(_GROUP_END)
        if not end or not group.clauses:
            raise ValueError(f"no end of a group at {self.at}")
        return _Clause(prefix, name, end[1], group)


def corrected(query: str) -> str | None:
    """Return in Lucene syntax what a query in KQL, or without operators, means; None where it is fine.

    Lucene reads `a:1 and b:2` as three clauses of which any may match.
    """
    reader = _Reader(query)
    level = reader.read()
    return _text(level) if level and reader.is_kql else None


def _text(level: _Level) -> str:
    """Write a level. `AND` binds no stronger than `OR` in Lucene: brackets say what belongs together."""
    together: list[list[str]] = [[]]
    before: _Clause | None = None
    for clause, operator in zip(level.clauses, ["", *level.operators], strict=True):
        if before and not operator and not level.of_field and _goes_on(before, clause):
            before = replace(before, value=f'"{before.value.strip(chr(34))} {clause.value}"')
            together[-1][-1] = _clause_text(before)
            continue
        if before and (operator == "OR" or (level.of_field and not operator)):
            together.append([])
        together[-1].append(_clause_text(clause))
        before = clause
    if len(together) == 1:
        return " AND ".join(together[0])
    return " OR ".join(_alternative(each) for each in together)


def _goes_on(before: _Clause, clause: _Clause) -> bool:
    """Whether a clause is the further word of a name with blanks, as in `user.name:John Smith`."""
    is_plain = before.is_word or (before.value.startswith('"') and " " in before.value)
    return bool(before.field) and is_plain and clause.is_word and not (clause.field or clause.prefix)


def _alternative(clauses: list[str]) -> str:
    if len(clauses) > 1:
        return f"({' AND '.join(clauses)})"
    return f"(*:* AND {clauses[0]})" if clauses[0].startswith("NOT ") else clauses[0]


def _clause_text(clause: _Clause) -> str:
    value = f"({_text(clause.group)}){clause.value}" if clause.group else clause.value
    return f"{clause.prefix}{clause.field}{value}"


def clauses(query: str) -> dict[str, dict[str, Any]]:
    """Return the clauses that must all match, each as query DSL by its text; none where it is only one."""
    if query.lstrip().startswith("{"):
        found = _clauses_of_dsl(json.loads(query))
    else:
        level = _Reader(query).read()
        each = level.clauses if level and "OR" not in level.operators else []
        signed = map(_clause_text, each)
        texts = (re.sub("^-", "NOT ", text.removeprefix("+")) for text in signed)
        found = {text: {"query_string": {"query": text}} for text in texts}
    return found if len(found) > 1 else {}


def _clauses_of_dsl(query: dict[str, Any]) -> dict[str, dict[str, Any]]:
    inside = query.get("bool")
    if not isinstance(inside, dict) or not inside.keys() <= {"filter", "must", "must_not"}:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for kind, some in inside.items():
        for one in some if isinstance(some, list) else [some]:
            found[f"{'not ' * (kind == 'must_not')}{json.dumps(one)}"] = {"bool": {kind: [one]}}
    return found
