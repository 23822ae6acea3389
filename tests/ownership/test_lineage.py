from ownership.declaration import lineage, polars_schema, source_tables
from ownership.tables import TABLES

LINEAGE = {
    table: lineage(model)
    for table, model in TABLES.items()
    if lineage(model) and table != "owner_decisions_history"
}
FROM_SERVICES = {"logon_counts", "logon_days", "inventory_hosts", "inventory_users"}
OF_THE_RUN = {
    "owner_decisions": {
        "window_from",
        "window_to",
        "threshold_percent",
        "decided_at",
        "run_id",
        "evidence_metric",
        "logon_type_weights",
        "new_conflict",
    },
    "owner_writes": {"run_id", "outcome", "message", "intended_at", "completed_at", "target", "undoes"},
}


def columns(table):
    return set(polars_schema(TABLES[table]))


def test_every_column_that_is_made_of_others_names_them():
    for table, sources in LINEAGE.items():
        assert set(sources) == columns(table) - OF_THE_RUN.get(table, set())


def test_every_source_is_a_column_of_an_earlier_table():
    for table, made in LINEAGE.items():
        earlier = list(TABLES)[: list(TABLES).index(table)]
        for sources in made.values():
            assert sources
            for source in sources:
                name, _, column = source.partition(".")
                assert name in earlier
                assert column in columns(name)


def test_the_lineage_leads_from_the_first_table_to_the_last():
    found, tables = set(), {"owner_writes"}
    while tables:
        found |= tables
        tables = {source for table in tables for source in source_tables(TABLES[table])}
    assert found == {*LINEAGE, *FROM_SERVICES}
