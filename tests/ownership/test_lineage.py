from ownership.tables import TABLES

FROM_SERVICES = {"logon_counts", "logon_days", "inventory_hosts", "inventory_users"}


def test_tables_are_made_of_earlier_ones():
    for number, model in enumerate(TABLES.values()):
        assert set(model.__reads__) <= set(list(TABLES)[:number])


def test_what_is_written_comes_from_all_that_the_services_gave():
    found, tables = set(), {"owner_writes"}
    while tables:
        found |= tables
        tables = {source for table in tables for source in TABLES[table].__reads__}
    assert found == {
        *FROM_SERVICES,
        "host_user_shares",
        "username_matches",
        "owner_decisions",
        "owner_writes",
    }
