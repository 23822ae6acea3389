from unittest.mock import Mock

from typer.testing import CliRunner

from pipelines.cli.app import app


def test_the_services_are_at_the_port_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    monkeypatch.setattr("sandbox.stand.Engine", started := Mock(side_effect=KeyboardInterrupt))
    assert CliRunner().invoke(app, ["sandbox", "up", "--port", "9200"]).exit_code == 0
    assert started.call_args.kwargs["port"] == 9200
    assert (tmp_path / "sandbox" / "inventory-port").read_text() == "9201"


def test_progress_is_not_printed_where_only_results_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    monkeypatch.setattr("sandbox.stand.Engine", Mock(side_effect=KeyboardInterrupt))
    said = [CliRunner().invoke(app, ["sandbox", "up", *options]).stdout for options in ([], ["-q"])]
    assert said == ["sandbox: stopped\n", ""]
