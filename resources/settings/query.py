"""Reads the text of a query: whether Lucene reads it as a person does, and its clauses (rules 3.2).

A person reads `AND` before `OR`, and `and`, or a blank between two clauses, as `AND`. To Lucene a clause is
required (`AND`, `+`), excluded (`NOT`, `-`) or optional, which counts only where nothing is required.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

# The tokens of Lucene, which takes the longest that fits: `&&b` is a word.
_CHARACTER = r'(?:\\.|[^\s+\-!():^\[\]"{}~*?\\/])'
_NAME = rf"{_CHARACTER}(?:{_CHARACTER}|[-+])*|\*"
_WORD = rf"(?:{_CHARACTER}|[*?])(?:{_CHARACTER}|[-+*?])*+"
_WORD_ENDS = r'(?=[\s!():^\[\]"{}~/]|$)'
_PHRASE = r'"(?:\\.|[^"\\])*"'
_REGEX = r"/(?:\\/|[^/])*/"
_RANGE = r'[\[{](?:"(?:\\"|[^"])+"|[^\]}"])*[\]}]'
_BOOST = r"(?:\s*(?:\^\d+(?:\.\d+)?|~(?:\d+(?:\.\d+)?)?))*"
_LUCENE_BLANKS = re.compile(rf"(?:\\.|{_PHRASE}|{_REGEX}|[ \t\n\r\u3000]|\S)*+", re.DOTALL)
_LUCENE_OPERATOR = re.compile(rf"(?:AND|OR|&&|\|\|){_WORD_ENDS}")
_LUCENE_PREFIX = re.compile(r"NOT\s*|[+!-]?")

# What a person may mean by them.
_GOES_ON = r"(?!\s*(?:[):]|$))"
_OPERATOR = re.compile(rf"(?:(?:AND|OR){_WORD_ENDS}|&&|\|\|){_GOES_ON}", re.IGNORECASE)
_CLAUSE = re.compile(
    rf"(?P<prefix>(?:(?:[+!-]|NOT{_WORD_ENDS}){_GOES_ON}\s*)*)"
    rf"(?:(?P<name>{_NAME})\s*(?P<colon>:|(?=[<>]))\s*)?+"
    rf"(?:(?P<group>\()|(?P<bound>[<>]=?\s*(?!{_WORD}\s*:))?"
    rf"(?P<value>(?:{_PHRASE}|{_REGEX}|{_RANGE}|{_WORD}|[+!-](?=\s)){_BOOST}))",
    re.DOTALL | re.IGNORECASE,
)
_BLANKS = re.compile(r"\s*")
_GROUP_END = re.compile(rf"\)({_BOOST})")
_NO_WORD = re.compile(r"[+!-]|AND|OR|NOT|&&|\|\|", re.IGNORECASE)
_COMPARISON_OR_PIPE = re.compile(r"(?:\\.|[^\\=])*=|\||>")
_OTHER = "another language, such as SQL, ES|QL or EQL"
_LANGUAGES = {
    "SQL": r"\s*(?:SELECT|WITH)\s.*\sFROM\s",
    "ES|QL": r"\s*(?:FROM|ROW|TS)\s+(?!(?:AND|OR|NOT|&&|\|\|)\s)",
    "EQL": r"\s*(?:\S+\s+WHERE|SEQUENCE|SAMPLE)\s",
    _OTHER: r"\s*WHERE\s|.*\w\s+(?:IN\s*\(|R?LIKE\s|IS\s+(?:NOT\s+)?NULL\b)",
}


@dataclass
class _Clause:
    """One clause: how it counts, the field with its colon, and a value or a group."""

    is_required: bool
    is_excluded: bool
    field: str
    value: str
    group: "list[list[_Clause]] | None" = None
    is_joined: bool = False

    @property
    def has_sign(self) -> bool:
        return self.is_required or self.is_excluded

    @property
    def is_plain(self) -> bool:
        """Whether it is a word, or between slashes."""
        return not self.group and self.value[0] not in '"[{'

    @property
    def is_word(self) -> bool:
        return self.is_joined or (self.is_plain and self.value[0] not in "/<>")


_Level = list[list[_Clause]]
"""Clauses beside each other as a person reads them: alternatives, each of clauses that must all match."""


def _is_clear(level: _Level) -> bool:
    """Whether Lucene reads these clauses the same way."""
    if len(level) > 1:
        return all(len(each) == 1 and not each[0].has_sign for each in level)
    positive = [clause for each in level for clause in each if not clause.is_excluded]
    return len(positive) == 1 or all(clause.is_required for clause in positive)


class _Reader:
    """Reads Lucene syntax with the operators of KQL as well.

    `is_clear` says whether Lucene reads the same, `is_foreign` whether it compares by `=` or has a pipe.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.is_clear = _LUCENE_BLANKS.fullmatch(text) is not None
        self.is_foreign = False

    def read(self) -> _Level | None:
        """Return the clauses; None where the text is neither: the search service will say what is wrong."""
        with suppress(ValueError, RecursionError):
            level = self._level(in_field=False)
            if self.at == len(self.text) and level:
                return level
        return None

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def _level(self, *, in_field: bool) -> _Level:
        level: _Level = []
        before: _Clause | None = None
        end = self.at
        while self._take(_BLANKS) and self.text[self.at : self.at + 1] not in {"", ")"}:
            start = self.at
            operator = self._operator() if before else ""
            clause = self._clause(in_field=in_field)
            if before and not operator and _continues(before, clause, is_glued=start == end):
                before.value += self.text[end : self.at]
                before.is_joined, self.is_clear = True, False
                end = self.at
                continue
            is_signed = clause.has_sign or (before and before.has_sign)
            if before and (operator == "AND" or (not operator and (is_signed or not in_field))):
                before.is_required |= operator == "AND"
                clause.is_required |= operator == "AND"
                level[-1].append(clause)
            else:
                # Lucene takes words with blanks between them for one value: `a:(1 2)` has no document.
                self.is_clear &= not before or bool(operator) or not (before.is_plain and clause.is_plain)
                level.append([clause])
            before, end = clause, self.at
        self.is_clear &= _is_clear(level)
        return level

    def _operator(self) -> str:
        start = self.at
        if not (found := self._take(_OPERATOR)):
            return ""
        self.is_clear &= _LUCENE_OPERATOR.match(self.text, start) is not None
        self._take(_BLANKS)
        return {"&&": "AND", "||": "OR"}.get(found[0], found[0].upper())

    def _clause(self, *, in_field: bool) -> _Clause:
        found = self._take(_CLAUSE)
        if not found:
            raise ValueError(f"no clause at {self.at}")
        signs = re.findall("[+!-]|NOT", found["prefix"].upper())
        is_excluded = len([sign for sign in signs if sign != "+"]) % 2 == 1
        name, value = f"{found['name']}:" if found["name"] else "", found["value"] or ""
        clause = _Clause("+" in signs, is_excluded, name, value)
        self.is_clear &= _LUCENE_PREFIX.fullmatch(found["prefix"]) is not None
        self.is_clear &= found["colon"] != ""
        self.is_foreign |= not (found["colon"] or in_field) and _COMPARISON_OR_PIPE.match(value) is not None
        if found["bound"]:
            bound = found["bound"].rstrip()
            self.is_clear &= bound == found["bound"] and clause.is_plain
            clause.value = _range(bound, value) if value.startswith('"') else f"{bound}{value}"
        elif found["group"]:
            clause.group, end = self._level(in_field=in_field or bool(name)), self._take(_GROUP_END)
            if not end or not clause.group:
                raise ValueError(f"no end of a group at {self.at}")
            clause.value = end[1]
        return clause


def _continues(before: _Clause, clause: _Clause, *, is_glued: bool) -> bool:
    # Whether a person reads a clause as more of the value before, as in `user.name:John Smith` or `a:x/y/z`.
    if clause.field or not (before.is_plain and clause.is_plain):
        return False
    return is_glued or bool(before.field and before.is_word and clause.is_word and not clause.has_sign)


def _range(bound: str, value: str) -> str:
    low, high = (value, "*") if bound[0] == ">" else ("*", value)
    return f"[{low} TO {high}]" if bound.endswith("=") else f"{{{low} TO {high}}}"


def other_language(query: str) -> str | None:
    """Return the name of the language of a query that is neither Lucene syntax nor KQL."""
    bare = re.sub(_PHRASE, '""', query)
    for language, start in _LANGUAGES.items():
        if re.match(start, bare, re.DOTALL | re.IGNORECASE):
            return language
    reader = _Reader(query)
    reader.read()
    return _OTHER if reader.is_foreign else None


def corrected(query: str) -> str | None:
    """Return in Lucene syntax what a person means by a query; None where Lucene reads it the same way."""
    reader = _Reader(query)
    level = reader.read()
    return _text(level) if level and not reader.is_clear else None


def _text(level: _Level) -> str:
    texts = [" AND ".join(map(_clause_text, each)) for each in level]
    if len(texts) == 1:
        return texts[0]
    single = [len(each) == 1 and not each[0].is_excluded for each in level]
    return " OR ".join(text if alone else f"({text})" for text, alone in zip(texts, single, strict=True))


def _clause_text(clause: _Clause) -> str:
    value = f"({_text(clause.group)}){clause.value}" if clause.group else clause.value
    if clause.is_joined and "*" in value:
        value = re.sub(r"(?<!\\)[\s/!~^]", r"\\\g<0>", value)
    elif clause.is_joined or _NO_WORD.fullmatch(value):
        value = f'"{value}"'
    return f"{'NOT ' * clause.is_excluded}{clause.field}{value}"


def clauses(query: str) -> dict[str, dict[str, Any]]:
    """Return the clauses that must all match, each as query DSL by its text; none where it is only one."""
    if query.lstrip().startswith("{"):
        found = _clauses_of_dsl(json.loads(query))
    else:
        level = _Reader(query).read()
        texts = map(_clause_text, level[0]) if level and len(level) == 1 else ()
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
