"""The decisions for other programs: a table for spreadsheets, and JSON with everything as it is."""

import json

import polars as pl

_FORMULA = r"(^|[;\t\r\n])([\s\p{C}\"--[\t\r\n]]*[=+\-@＝＋－＠]|')"  # noqa: RUF001  (wide signs are formulas, too)


def decisions_csv(decisions: pl.DataFrame) -> str:
    """The decisions for a spreadsheet, conflicts first: texts quoted, lists joined, instants in UTC."""
    return (
        pl.concat([decisions.filter(action="conflict"), decisions.filter(pl.col("action") != "conflict")])
        .with_columns(pl.col(pl.List(pl.String)).list.join(","))
        .with_columns(without_formulas(pl.col(pl.String)).name.keep())
        .write_csv(quote_style="non_numeric", datetime_format="%Y-%m-%dT%H:%M:%SZ")
    )


def without_formulas(text: pl.Expr) -> pl.Expr:
    """Write texts so that no spreadsheet runs them: a name in a log may look like a formula.

    A spreadsheet whose list separator is `;` or a tab begins a cell after each of them and each line break,
    whatever the quotes. An apostrophe goes before each such part that starts like a formula or with an
    apostrophe, so that the name can be had again by taking the first one of each part away.
    """
    return text.str.replace_all(_FORMULA, "$1'$2")


def decisions_json(decisions: pl.DataFrame, *, instance: str) -> str:
    """The decisions as one JSON object: instance, conflicts, decisions; names exactly as they are."""
    members = {
        "instance": json.dumps(instance),
        "conflicts": decisions.filter(action="conflict").write_json(),
        "decisions": decisions.write_json(),
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}\n"
