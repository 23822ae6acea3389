"""Reads the text of a query: whether it is KQL instead of Lucene syntax, and its clauses (rules 3.2)."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_PHRASE = r'"(?:\\.|[^"\\])*"'
_VALUES = re.compile(
    rf'(?:{_PHRASE}|/(?:\\.|[^/\\])+/|[\[{{](?:{_PHRASE}|\\.|[^\]}}"\\])*[\]}}]|(?:\\.|[^\s()"\\:])(?:\\.|[^\s()"\\])*)'
    r"(?:[~^][\d.]*)*",
    re.DOTALL,
)
_NAME = re.compile(
    r'((?:\\.|[^\s()"\[\]{}:\\/<>=!+-])(?:\\.|[^\s()"\[\]{}:\\/<>=])*)\s*(:|[<>]=?)\s*', re.DOTALL
)
_OPERATOR = re.compile(r"(and|or|not)(?=[\s()]|$)|(&&|\|\||!)", re.IGNORECASE)
_NAMED = {"&&": "AND", "||": "OR", "!": "NOT"}


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


class _UnreadableError(ValueError):
    """The text is neither; the search service will say what it thinks of it."""


class _Reader:
    """Reads Lucene syntax with the operators of KQL as well; `is_kql` says whether it met any."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.is_kql = False

    def read(self) -> _Level:
        level = self._level(of_field=False)
        if self.at < len(self.text) or not level.clauses:
            raise _UnreadableError
        return level

    def _skip_blanks(self) -> bool:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.at < len(self.text) and self.text[self.at] != ")"

    def _operator(self, *wanted: str) -> str:
        """Read one of these operators, if it stands here and a clause follows."""
        found = _OPERATOR.match(self.text, self.at)
        if not found:
            return ""
        operator = _NAMED.get(found[0], found[0].upper())
        rest = self.text[found.end() :].lstrip()
        if operator not in wanted or not rest or rest[0] in "):":
            return ""
        self.at = found.end()
        if found[1] and found[1] != operator:
            self.is_kql = True
        return operator

    def _level(self, *, of_field: bool) -> _Level:
        level = _Level(of_field)
        while self._skip_blanks():
            operator = ""
            if level.clauses:
                operator = self._operator("AND", "OR")
                self._skip_blanks()
                level.operators.append(operator)
            clause = self._clause()
            # Lucene takes either of two such clauses, and of no prefix at all beside `+` none.
            if level.clauses and not (operator or of_field or clause.prefix or level.clauses[-1].prefix):
                self.is_kql = True
            level.clauses.append(clause)
        return level

    def _clause(self) -> _Clause:
        prefix = ""
        while True:
            self._skip_blanks()
            if self.text[self.at : self.at + 1] in {"+", "-"}:
                prefix, self.at = prefix + self.text[self.at], self.at + 1
            elif self._operator("NOT"):
                prefix += "NOT "
            else:
                break
        name = ""
        if found := _NAME.match(self.text, self.at):
            self.at = found.end()
            name = f"{found[1]}:"
            if found[2] != ":":
                self.is_kql = True
                name += found[2]
        if self.text[self.at : self.at + 1] == "(":
            self.at += 1
            group = self._level(of_field=bool(name))
            if self.text[self.at : self.at + 1] != ")" or not group.clauses:
                raise _UnreadableError
            after = re.compile(r"\)(?:[~^][\d.]*)*").match(self.text, self.at)
            self.at = after.end() if after else self.at
            return _Clause(prefix, name, after[0][1:] if after else "", group)
        value = _VALUES.match(self.text, self.at)
        if not value:
            raise _UnreadableError
        self.at = value.end()
        text = value[0]
        if text in {"<", ">", "<=", ">="} and (bound := _VALUES.match(self.text, self._next())):
            text, self.at = text + bound[0], bound.end()
        return _Clause(prefix, name, text)

    def _next(self) -> int:
        self._skip_blanks()
        return self.at


def corrected(query: str) -> str | None:
    """Return in Lucene syntax what a query in KQL, or without operators, means; None where it is fine.

    Lucene reads `a:1 and b:2` as three clauses of which any may match.
    """
    reader = _Reader(query)
    try:
        level = reader.read()
    except (_UnreadableError, RecursionError):
        return None
    return _text(level) if reader.is_kql else None


def _text(level: _Level) -> str:
    """Write a level. `AND` binds no stronger than `OR` in Lucene: brackets say what belongs together."""
    together: list[list[str]] = [[]]
    before: _Clause | None = None
    for clause, operator in zip(level.clauses, ["", *level.operators], strict=True):
        if before and not operator and not level.of_field and _goes_on(before, clause):
            together[-1][-1] = _clause_text(before).removesuffix(before.value)
            before = _Clause(before.prefix, before.field, f'"{before.value.strip(chr(34))} {clause.value}"')
            together[-1][-1] += before.value
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
        try:
            level = _Reader(query).read()
        except (_UnreadableError, RecursionError):
            return {}
        each = [] if "OR" in level.operators else level.clauses
        found = {
            text: {"query_string": {"query": text}}
            for text in (
                re.sub(r"^(\+|-)", lambda sign: "NOT " * (sign[0] == "-"), _clause_text(one)) for one in each
            )
        }
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
