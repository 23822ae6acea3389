"""The units of deploy/systemd start what they name, under their restrictions, and stop it in time."""

import re
import shlex
import shutil
import subprocess

import pytest

from tests.deploy.machine import DEPLOY, SERVICE, UNCOMPILED, needs_bwrap, on_machine

pytestmark = [pytest.mark.slow, needs_bwrap]

UNITS = {
    "asset-owners.service": "http://127.0.0.1:3000/server_info",
    "asset-owners-metrics.service": "http://127.0.0.1:9188/metrics",
}


def settings(text):
    """Name and value of each line, the last of a name wins; lines of Environment= as one dictionary."""
    pairs = [line.partition("=")[::2] for line in text.splitlines() if "=" in line and line[0] != "#"]
    environment = dict(value.partition("=")[::2] for name, value in pairs if name == "Environment")
    return dict(pairs), environment


@pytest.mark.parametrize(("unit", "url"), UNITS.items())
def test_a_unit_starts_as_its_user_with_a_read_only_root_and_stops_within_ten_seconds(unit, url, tmp_path):
    unit, environment = settings((DEPLOY / "systemd" / unit).read_text())
    secrets, _ = settings((DEPLOY / "systemd" / "environment").read_text())
    instances = tmp_path / "instances"
    shutil.copytree(DEPLOY.parent / "docs" / "examples", instances)
    state = tmp_path / "state"
    state.mkdir()
    python = "/opt/asset-owners/.venv/bin/python"
    said = on_machine(
        *(python, "-c", SERVICE, url, *shlex.split(unit["ExecStart"])),
        state=state,
        installed={"/etc/asset-owners/instances": instances},
        env={**environment, **secrets},
    )
    if "metrics" in url:
        assert f"asset_owners_instances {len([*instances.iterdir()])}" in said
    else:
        assert (state / "dagster/dagster.yaml").exists()


def test_commands_called_by_the_wrapper_name_commands_as_an_administrators_shell_finds_them(tmp_path):
    wrapper = (DEPLOY / "systemd" / "asset-owners").read_text()
    (program,) = re.findall(r"-- (\S+)", wrapper)
    said = on_machine(
        program, "init", "-", state=tmp_path, env=dict(re.findall(r"--setenv=(\w+)=(\S+)", wrapper))
    )
    assert re.search(r"^# +asset-owners check ", said, re.MULTILINE)


def test_a_service_that_may_not_write_beside_the_program_finds_all_of_it_compiled(tmp_path):
    """Otherwise each of its processes would compile what it imports, for seconds."""
    checkout, state = tmp_path / "checkout", tmp_path / "state"
    unused = shutil.ignore_patterns(".*", "__pycache__", "tests", "var")
    shutil.copytree(DEPLOY.parent, checkout, ignore=unused)
    (checkout / ".venv").symlink_to(DEPLOY.parent / ".venv")
    state.mkdir()
    subprocess.run(["make", "--directory", checkout, "setup"], check=True)  # noqa: S603, S607  (our own)
    found = on_machine(
        *("/opt/asset-owners/.venv/bin/python", "-c", UNCOMPILED),
        state=state,
        installed={"/opt/asset-owners": checkout},
        env={"PYTHONPATH": "/opt/asset-owners"},
    )
    assert found == "\n"


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze (Debian: systemd) is missing"
)
def test_systemd_understands_the_units_and_finds_little_that_they_could_harm(tmp_path):
    units = [f"/opt/asset-owners/deploy/systemd/{unit}" for unit in UNITS]
    said = on_machine("systemd-analyze", "verify", *units, state=tmp_path)
    assert "asset-owners" not in said, said
    said = on_machine(
        "systemd-analyze", "security", "--offline=true", "--threshold=25", *units, state=tmp_path
    )
    assert said.count("OK") >= len(UNITS)
