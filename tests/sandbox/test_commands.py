import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from typer.testing import CliRunner

from pipelines.cli.app import app
from sandbox.commands import _to_paste
from tests.resources.samples import instance_content


def test_the_services_are_at_the_port_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    monkeypatch.setattr("sandbox.stand.Engine", started := Mock(side_effect=KeyboardInterrupt))
    assert CliRunner().invoke(app, ["sandbox", "up", "--port", "9200"]).exit_code == 0
    assert started.call_args.kwargs["port"] == 9200
    assert (tmp_path / "sandbox" / "inventory-port").read_text() == "9201"


@pytest.mark.slow
def test_a_command_that_the_demo_shows_works_in_a_shell_that_knows_nothing_of_it(tmp_path, monkeypatch):
    home = tmp_path / "a home"
    (home / "instances").mkdir(parents=True)
    file = home / "instances" / "demo.yaml"
    file.write_text(yaml.safe_dump(instance_content(name="Demo")), encoding="utf-8")
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    monkeypatch.setattr("sys.argv", [str(Path(sys.executable).with_name("asset-owners"))])
    shown = _to_paste(file, "explain", "lt-1001")
    monkeypatch.delenv("ASSET_OWNERS_HOME")
    ran = subprocess.run(  # noqa: S602  (to be pasted is what it is for)
        shown, shell=True, check=False, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ)
    )
    assert ran.returncode == 1
    assert "Demo has no tables yet; run it first: " in ran.stderr
