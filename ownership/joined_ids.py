"""Ids of several user assets in one text: joined with commas, with %2C for a comma inside an id.

Ids without commas, which nearly all are, stand there as they are; in others %25 stands for the % of what
would read as %2C or %25.
"""

import re
from collections.abc import Iterable

import polars as pl

_LOOKS_ESCAPED = "%(2C|25)"


def joined_ids(ids: Iterable[str]) -> str:
    """Return ids as one text; without any it is empty."""
    return ",".join(re.sub(_LOOKS_ESCAPED, r"%25\1", each).replace(",", "%2C") for each in ids)


def join_ids(ids: pl.Expr) -> pl.Expr:
    """Return lists of ids as texts, as `joined_ids`."""
    return ids.list.eval(escape_id(pl.element())).list.join(",")


def escape_id(user_id: pl.Expr) -> pl.Expr:
    """Return single ids as such texts."""
    return user_id.str.replace_all(_LOOKS_ESCAPED, "%25$1").str.replace_all(",", "%2C", literal=True)


def split_ids(texts: pl.Expr) -> pl.Expr:
    """Return the lists of ids in texts that `join_ids` returned."""
    commas = pl.element().str.replace_all("%2C", ",", literal=True)
    return texts.str.split(",").list.eval(commas.str.replace_all("%25(2C|25)", "%$1"))
