"""`docs`: what an analyst reads of the tables before a query."""

import json
import re

from ownership.declaration import columns_of
from ownership.tables import TABLES
from resources.store.catalogue import VIEWS


def test_tables_and_views_are_listed_and_described_as_sql_finds_them_at_80_columns(call, catalogued):
    status, listed, _ = call("docs", "tables")
    names = [line.split()[0] for line in listed.partition("\n\n")[0].splitlines() if line[0] != " "]
    assert (status, names) == (0, [*TABLES, *VIEWS])
    columns = "SELECT table_name, column_name, data_type FROM duckdb_columns() ORDER BY column_index"
    printed = call("sql", "--instance", catalogued, "--format", "json", columns)[1]
    found = [row.values() for row in json.loads(printed)]
    for name in names:
        status, described, error = call("docs", "tables", name)
        assert status == 0, error
        assert max(map(len, (listed + described).splitlines())) <= 80
        head, columns = described.rsplit("\n\n", 1)
        heads = [f"{column} {kind}: " for table, column, kind in found if table == name]
        places = [" ".join(columns.split()).find(head) for head in heads]
        assert places, name
        assert -1 not in places
        assert places == sorted(places), "in the order of the table"
        if name in TABLES:
            assert all(column in head for column in TABLES[name].__key__)
            codes = [code for column in columns_of(TABLES[name]).values() for code in column.codes]
            assert re.findall(r"(?m)^ {4}([\w.-]+):", columns) == codes


def test_a_guide_or_a_table_that_is_not_there_is_an_error_that_names_those_that_are(call):
    for words, there in ((["docs", "rule"], "rules"), (["docs", "tables", "writes"], "owner_writes")):
        status, printed, error = call(*words)
        assert (status, printed) == (2, "")
        assert there in error
