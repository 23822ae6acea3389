"""Whose tables lie in a place, which machines with homes of their own may share."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from upath import UPath

from resources import format_version
from resources.errors import AssetOwnersError, ConfigurationError
from resources.format_version import program_version
from resources.settings import tables_location
from resources.store.files import create
from resources.store.tables import Tables

pytestmark = pytest.mark.usefixtures("no_catalogue")
WAYS = (Tables.claim, Tables.prepare, Tables.require_own)
HERE, THERE = "https://inventory.example, tenant t-1", "https://inventory.example, tenant t-2"


@pytest.fixture(params=["disk", pytest.param("object store", marks=pytest.mark.slow)])
def on(request, monkeypatch, tmp_path):
    """Gives an instance's tables on a machine; they lie in one place."""
    if request.param == "disk":
        monkeypatch.setenv("ASSET_OWNERS_TABLES", str(tmp_path / "shared"))
    else:
        request.getfixturevalue("object_store")

    def tables(machine, name="Corp", target=HERE, **options):
        return Tables(
            tmp_path / machine, "corp", name=name, target=target, location=tables_location(), **options
        )

    return tables


def refused(use):
    with pytest.raises(ConfigurationError) as told:
        use()
    return str(told.value)


def test_of_machines_that_come_at_the_same_time_one_has_the_tables(on):
    machines = [on(f"m-{number}", target=f"inventory {number}") for number in range(8)]

    def came_first(tables):
        try:
            tables.claim()
        except ConfigurationError:
            return False
        return True

    with ThreadPoolExecutor(len(machines)) as pool:
        outcomes = list(pool.map(came_first, machines))
    assert sum(outcomes) == 1
    machines[outcomes.index(True)].require_own()


def test_a_rebuilt_machine_gets_in_and_another_instance_does_not(on):
    on("a").prepare()
    claim = on("a").folder / ".instance"
    for way in WAYS:
        way(on("a-rebuilt"))
        for name, target in (("CORP", HERE), ("Corp", THERE)):
            said = refused(lambda way=way, name=name, target=target: way(on("b", name, target)))
            assert all(word in said for word in (repr(name), "'Corp'", HERE, f"delete {claim}"))
            assert ("Correct platform.url, platform.tenant_id" in said) == (name == "Corp")
    claim.unlink()
    on("a", target=None).prepare()
    for way in WAYS:
        way(on("b", target=THERE))
    assert refused(on("a").require_own)


def test_a_damaged_record_is_refused(on):
    on("a").prepare()
    (on("a").folder / ".instance").write_bytes(b'{"na')
    assert str(on("a").folder / ".instance") in refused(on("a").claim)


@pytest.mark.parametrize(("number", "advice"), [(99, "install 99.0"), (1, "begin there")])
def test_tables_of_another_format_stay_unchanged(on, monkeypatch, number, advice):
    with monkeypatch.context() as other:
        other.setattr(format_version, "FORMAT", number)
        other.setattr(format_version, "program_version", lambda: "99.0")
        on("a").prepare()
    for way in WAYS:
        for machine in (on("a"), on("b"), on("c", name=None)):
            with pytest.raises(AssetOwnersError, match=rf"99\.0 .*{program_version()}.*{advice}"):
                way(machine)


@pytest.mark.parametrize(
    "error", [TypeError("mode"), OSError("An error occurred (NotImplemented) when calling PutObject")]
)
def test_what_a_store_cannot_do_on_condition_it_does_without(monkeypatch, error):
    path = UPath("memory://claims/claim")
    done = path.fs.pipe_file

    def pipe_file(name, content, **condition):
        if condition:
            raise error
        done(name, content)

    monkeypatch.setattr(path.fs, "pipe_file", pipe_file)
    create(path, b"x")
    assert path.read_bytes() == b"x"
