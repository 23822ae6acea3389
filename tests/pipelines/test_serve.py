"""`asset-owners serve` and `prepare`: Dagster's home and its services."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
import requests

from pipelines.dagster_home import dagster_home

ASSET_OWNERS = Path(sys.executable).with_name("asset-owners")


def test_dagster_takes_the_settings_that_are_prepared(call, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    status, said, _ = call("prepare")
    assert status == 0
    assert str(tmp_path / "instances") in said
    with dg.DagsterInstance.from_config(str(dagster_home(tmp_path))) as instance:
        assert instance.run_monitoring_enabled
        queue = instance.get_concurrency_config().run_queue_config
        assert queue
        assert queue.max_user_code_failure_retries > 0


@pytest.mark.slow
def test_it_serves_until_it_is_stopped_and_leaves_no_process_behind(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "ASSET_OWNERS_HOME": str(tmp_path)}
    environment.pop("DAGSTER_HOME", None)
    log = tmp_path / "log"
    with (
        log.open("w") as said,
        subprocess.Popen(  # noqa: S603  (our own command)
            [ASSET_OWNERS, "serve", "--port", str(port)], env=environment, stdout=said, stderr=said
        ) as process,
    ):
        while f"The Dagster UI is at http://127.0.0.1:{port}" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
        assert requests.get(f"http://127.0.0.1:{port}/server_info", timeout=30).ok
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        stopped = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert time.monotonic() - stopped < 10
    assert len(children) == 3
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


@pytest.mark.slow
def test_a_port_that_is_taken_ends_it_with_the_option_to_choose_another(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = subprocess.run(  # noqa: S603  (our own command)
            [ASSET_OWNERS, "serve", "--port", str(taken.getsockname()[1])],
            env={**os.environ, "ASSET_OWNERS_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
    assert ended.returncode == 1
    assert "--port" in ended.stderr.splitlines()[-1]
