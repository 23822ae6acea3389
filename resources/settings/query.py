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
_LUCENE_SIGNS = re.compile(rf"(?:(?:AND|OR|&&|\|\|){_WORD_ENDS}\s*)?(?:NOT{_WORD_ENDS}\s*|[+!-])?")
_LUCENE_BLANKS = re.compile(rf"(?:\\.|{_PHRASE}|{_REGEX}|[ \t\n\r\u3000]|\S)*+", re.DOTALL)

# What a person may mean by them.
_GOES_ON = r"(?!\s*(?:[):]|$))"
_CLAUSE = re.compile(
    rf"(?:(?P<operator>(?:AND|OR){_WORD_ENDS}|&&|\|\|){_GOES_ON}\s*)?"
    rf"(?P<prefix>(?:(?:[+!-]|NOT{_WORD_ENDS}){_GOES_ON}\s*)*)"
    rf"(?:(?P<name>{_NAME})\s*(?P<colon>:|(?=[<>]))\s*)?+"
    rf"(?:(?P<group>\()|(?P<bound>[<>]=?\s*(?!{_WORD}\s*:))?"
    rf"(?P<value>(?:{_PHRASE}|{_REGEX}|{_RANGE}|{_WORD}){_BOOST}))",
    re.DOTALL | re.IGNORECASE,
)
_BLANKS = re.compile(r"\s*")
_GROUP_END = re.compile(rf"\)({_BOOST})")
_KQL = {"and", "or", "not"}
_LANGUAGES = {
    "SQL": r"\s*(?:SELECT|WITH)\s.*\sFROM\s",
    "ES|QL": r"\s*(?:FROM|ROW|TS)\s+(?!(?:AND|OR|NOT|&&|\|\|)\s)",
    "EQL": r"\s*(?:\S+\s+WHERE|SEQUENCE|SAMPLE)\s",
    "another language, such as SQL, ES|QL or EQL": r'(?:.*[\s(])?(?:[^\s():"\\<>]*=|<>|\|(?!\|)'
    r"|WHERE\s|IN\s*\(|R?LIKE\s|IS\s+(?:NOT\s+)?NULL\b)",
}


@dataclass
class _Clause:
    """One clause: its sign (`+`, `NOT ` or none), the field with its colon, and a value or a group."""

    sign: str
    field: str
    value: str
    group: "list[list[_Clause]] | None" = None
    is_joined: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.group and self.value[0] not in '"[{'


_NO_OPERATOR = "has clauses or values without an operator between them"
_Level = list[list[_Clause]]
"""Clauses beside each other as a person reads them: alternatives, each of clauses that must all match."""


class _Reader:
    """Reads Lucene syntax, with KQL's operators as well; `faults` say why Lucene reads it otherwise."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.faults = dict[str, bool]()
        self._require("has a blank of another kind than Lucene's", _LUCENE_BLANKS.fullmatch(text))

    def _require(self, fault: str, holds: object) -> None:
        self.faults |= {} if holds else {fault: True}

    def read(self) -> _Level | None:
        """Return the clauses; None if they cannot be read, which the search service will report."""
        with suppress(ValueError, RecursionError):
            level = self._level(in_field=False)
            if self.at == len(self.text):
                return level
        return None

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        if not (found := pattern.match(self.text, self.at)):
            raise ValueError(f"not readable from {self.at}")
        self.at = found.end()
        return found

    def _level(self, *, in_field: bool) -> _Level:
        level: _Level = []
        end = self._take(_BLANKS).end()
        while self.text[self.at : self.at + 1] not in {"", ")"}:
            start, before = self.at, level[-1][-1] if level else None
            operator, clause = self._clause(in_field=in_field)
            if not before:
                level.append([clause])
            elif not operator and _continues(before, clause, is_glued=start == end):
                before.value += self.text[end : self.at]
                before.is_joined = True
                self._require("has several words or a path without quotes", holds=False)
            elif operator == "OR" or (in_field and not (operator or before.sign or clause.sign)):
                # Lucene takes words with blanks between them for one value: `a:(1 2)` finds nothing.
                self._require(_NO_OPERATOR, operator or not (before.is_plain and clause.is_plain))
                level.append([clause])
            else:
                if operator:
                    before.sign, clause.sign = before.sign or "+", clause.sign or "+"
                level[-1].append(clause)
            end = self.at
            self._take(_BLANKS)
        if not level:
            raise ValueError(f"no clause at {self.at}")
        several = len(level) > 1
        signs = [clause.sign for each in level for clause in each if several or clause.sign != "NOT "]
        mixed = "AND" if len(signs) > len(level) else "NOT or +" if any(signs) else ""
        self._require(f"mixes OR and {mixed} without brackets", not (several and mixed))
        self._require(_NO_OPERATOR, several or len(signs) == 1 or all(signs))
        return level

    def _clause(self, *, in_field: bool) -> tuple[str, _Clause]:
        start, found = self.at, self._take(_CLAUSE)
        signs = _LUCENE_SIGNS.match(self.text, start)
        if signs and signs.end() > found.end("prefix"):
            raise ValueError(f"no clause after an operator at {start}")
        written = self.text[start : found.end("prefix")].strip()
        small = [word for word in re.findall("(?i)and|or|not", written) if not word.isupper()]
        self._require(f"writes {' and '.join(small)} in small letters", not small)
        is_read = small or (signs and signs.end() == found.end("prefix"))
        self._require(f"has {written} where Lucene takes no operator", is_read)
        self._require("has a comparison without a colon", found["colon"] != "")
        operator = (found["operator"] or "").upper().replace("&&", "AND").replace("||", "OR")
        is_excluded = len(re.findall("[!-]|NOT", found["prefix"].upper())) % 2
        sign = "NOT " if is_excluded else "+" if "+" in found["prefix"] else ""
        name, value = f"{found['name']}:" if found["name"] else "", str(found["value"] or "")
        clause = _Clause(sign, name, value)
        if not name and value in _KQL:  # one of KQL's operators, without what it joins
            self._require(f"writes {value} in small letters", holds=False)
        if found["bound"]:
            bound = found["bound"].rstrip()
            is_read = bound == found["bound"] and clause.is_plain
            self._require("has a blank or quotes after < or >", is_read)
            clause.value = f"{bound}{value}"
            if value[0] == '"':
                low, high = (value, "*") if bound[0] == ">" else ("*", value)
                clause.value = f"[{low} TO {high}]" if bound.endswith("=") else f"{{{low} TO {high}}}"
        elif found["group"]:
            clause.group = self._level(in_field=in_field or bool(name))
            clause.value = self._take(_GROUP_END)[1]
        return operator, clause


def _continues(before: _Clause, clause: _Clause, *, is_glued: bool) -> bool:
    """Return whether this word continues the value before it: `user.name:John Smith`, `a:x/y/z`."""
    are_words = not clause.field and before.is_plain and clause.is_plain
    return are_words and (is_glued or bool(before.field and not clause.sign))


def detect_language(query: str) -> str | None:
    """Return the name of the language of a query that is neither Lucene syntax nor KQL."""
    bare = re.sub(rf"{_PHRASE}|{_REGEX}|:\s*(?:\([^()]*\)|[^\s()\"]+)", '""', query)
    flags = re.DOTALL | re.IGNORECASE
    return next((language for language, start in _LANGUAGES.items() if re.match(start, bare, flags)), None)


def correct_query(query: str) -> str | None:
    """Return a query as a person means it, in Lucene syntax; None if Lucene reads it the same way."""
    level = (reader := _Reader(query)).read()
    lucene = _text(level) if reader.faults and level else query
    return None if lucene == query else lucene


def describe_faults(query: str) -> str:
    """Return why Lucene does not read a query as a person does."""
    (reader := _Reader(query)).read()
    return " and ".join(reader.faults)


def _text(level: _Level) -> str:
    if len(level) == 1:
        return " AND ".join(map(_clause_text, level[0]))
    return " OR ".join(
        f"({_text([each])})" if len(each) > 1 or each[0].sign == "NOT " else _text([each]) for each in level
    )


def _clause_text(clause: _Clause) -> str:
    value = f"({_text(clause.group)}){clause.value}" if clause.group else clause.value
    if clause.is_joined:
        value = re.sub(r"(?<!\\)[\s/!~^]", r"\\\g<0>", value) if "*" in value else f'"{value}"'
    elif not clause.field and value in _KQL:
        value = f'"{value}"'
    return f"{clause.sign.removeprefix('+')}{clause.field}{value}"


def clauses(query: str) -> dict[str, dict[str, Any]]:
    """Return the clauses that must all match, as query DSL by text; empty if there is only one."""
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
    return {
        f"{'not ' * (kind == 'must_not')}{json.dumps(one)}": {"bool": {kind: [one]}}
        for kind, some in inside.items()
        for one in (some if isinstance(some, list) else [some])
    }
