"""The decisions for other programs: a table for spreadsheets, and JSON with everything as it is."""

import json

import polars as pl

_FORMULA = r"(^|[;\t\r\n])([\s\p{C}\"--[\t\r\n]]*[=+\-@＝＋－＠]|')"  # noqa: RUF001  (wide signs are formulas, too)


def decisions_csv(decisions: pl.DataFrame) -> str:
    """Write the decisions for a spreadsheet, conflicts first.

    Args:
        decisions: Rows of `owner_decisions`.

    Returns:
        CSV with a header: texts quoted and `without_formulas`, lists joined with commas, instants in UTC.
    """
    return (
        pl.concat([decisions.filter(action="conflict"), decisions.filter(pl.col("action") != "conflict")])
        .with_columns(pl.col(pl.List(pl.String)).list.join(","))
        .with_columns(without_formulas(pl.col(pl.String)).name.keep())
        .write_csv(quote_style="non_numeric", datetime_format="%Y-%m-%dT%H:%M:%SZ")
    )


def without_formulas(text: pl.Expr) -> pl.Expr:
    """Write texts so that no spreadsheet runs them: a name in a log may look like a formula.

    Where the list separator is `;` or a tab, quotes within a line do not count, and a cell begins after each
    separator and each line break. An apostrophe goes before each such part that starts like a formula
    (`=`, `+`, `-`, `@`) or with an apostrophe, so that whoever takes the first one of each part away has the
    name as it was.
    """
    return text.str.replace_all(_FORMULA, "$1'$2")


def decisions_json(decisions: pl.DataFrame, *, instance: str) -> str:
    """Write the decisions as one JSON object: instance, conflicts, decisions; names exactly as they are.

    Args:
        decisions: Rows of `owner_decisions`.
        instance: Name of the instance.
    """
    members = {
        "instance": json.dumps(instance),
        "conflicts": decisions.filter(action="conflict").write_json(),
        "decisions": decisions.write_json(),
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}\n"
