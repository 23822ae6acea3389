import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from resources import locks
from resources.errors import AssetOwnersError, ConfigurationError
from resources.ledger.ledger import Ledger
from resources.ledger.postgres import PostgresLedger
from resources.settings import home, journal_url
from resources.store.tables import Tables
from resources.writeback import target_lock as module
from resources.writeback.target_lock import locked_ledger, target_lock
from tests.resources.clock import Clock
from tests.resources.samples import instance, instance_content

ROOT = Path(__file__).parents[3]
HOLDER = """
import time
from tests.resources.writeback.test_target_lock import writing

with writing():
    print("writing", flush=True)
    time.sleep(600)
"""
MACHINES = pytest.param("machines", marks=pytest.mark.slow)


def test_tables_that_another_machine_has_recorded_for_its_inventory_meanwhile_let_nobody_write(tmp_path):
    own = Tables(tmp_path, "corp", name="Corp", target="here")
    replace(own, target="there").claim()
    with pytest.raises(ConfigurationError, match="there"), locked_ledger(own, instance().platform):
        pytest.fail("it may write")


@contextmanager
def writing(settings=None):
    """Write, as nobody else may meanwhile; where machines share a ledger, each time from another machine."""
    url = journal_url()
    with ExitStack() as stack:
        if url:
            ledger = stack.enter_context(PostgresLedger(url, lambda: "corp"))
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            ledger = stack.enter_context(Ledger(Path(folder) / "ledger.sqlite"))
        with mock.patch.object(module, "_is_bound", return_value=True) if url else nullcontext():
            stack.enter_context(target_lock(settings or platform(), ledger))
        yield


def platform(**changes):
    """A tenant to which no test beside these writes: all processes of a machine share the lock."""
    return instance(platform={**instance_content()["platform"], "tenant_id": "own", **changes}).platform


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(locks, "time", clock)
    return clock


@pytest.fixture(params=["linux", "another system", "containers", MACHINES])
def system(request, monkeypatch, tmp_path):
    """The names of sockets that Linux has, lock files of other systems and of a home, what machines share."""
    if request.param == "machines":
        url = request.getfixturevalue("postgres").new_database()
        monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    elif request.param == "containers":
        home().mkdir()
        monkeypatch.setattr(module, "_is_bound", lambda *_: True)
    else:
        monkeypatch.setattr("sys.platform", request.param)
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))


@pytest.mark.usefixtures("system")
def test_a_second_writer_to_the_target_gives_up_with_a_message(clock):
    with (
        writing(),
        pytest.raises(AssetOwnersError, match=r"inventory\.example.*, tenant own: held by .* waited for 600"),
        writing(),
    ):
        pytest.fail("two at the same time")
    assert 600 <= clock.now < 602


@pytest.mark.usefixtures("system")
def test_a_second_writer_goes_on_as_soon_as_the_first_one_has_ended(clock):
    first = writing()
    first.__enter__()

    def sleep(seconds):
        clock.naps.append(seconds)
        if len(clock.naps) == 3:
            first.__exit__(None, None, None)

    clock.sleep = sleep
    with writing():
        assert len(clock.naps) >= 3


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("changes", "in_the_way"),
    [
        ({"tenant_id": "t-2"}, False),
        ({"url": "https://büro.example:8443/~a"}, False),
        ({"url": "https://other.example/~a"}, False),
        ({"url": "HTTPS://Büro.Example:443/~a/", "email": "another@corp.example"}, True),
        ({"url": "https://büro.example.:0443/%7Ea"}, True),
        ({"url": "https://xn--bro-hoa.example:/~A", "tenant_id": " OWN\n"}, True),
    ],
)
def test_only_writers_to_one_target_however_it_is_spelt_are_in_each_others_way(changes, in_the_way):
    refused = pytest.raises(AssetOwnersError) if in_the_way else nullcontext()
    here = {"url": "https://büro.example/~a"}
    with writing(platform(**here)), refused, writing(platform(**here | changes)):
        assert not in_the_way


def test_a_name_that_nobody_can_take_is_an_error_and_no_reason_to_wait():
    with pytest.raises(OSError, match="too long"), ExitStack() as held:
        module._is_bound("x" * 200, held)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("system", ["linux", MACHINES], indirect=True)
@pytest.mark.slow
def test_a_killed_writer_lets_the_next_one_in(monkeypatch):
    monkeypatch.setattr(locks, "TIMEOUT_SECONDS", 1)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE)  # noqa: S603 (ours)
    with holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == b"writing\n"
            with pytest.raises(AssetOwnersError) as told, writing():
                pytest.fail("two at the same time")
            machine = f"asset-owners {holder.pid} on {socket.gethostname()}"
            process = f"process {holder.pid} of user"
            assert f"held by {machine if journal_url() else process}" in str(told.value)
        finally:
            os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with writing():
            pass


@pytest.mark.usefixtures("clock")
def test_a_process_that_only_binds_the_name_is_not_a_run_of_ours():
    with mock.patch.object(module, "_is_bound", return_value=True) as claimed, writing():
        name = claimed.call_args.args[0]
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0{name}")
        with pytest.raises(AssetOwnersError, match="another version of this one"), writing():
            pass
