"""The steps of deploy/Dockerfile build an image that is small and holds what the manifests start."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.machine import DEPLOY, PROGRAM, SERVICE, UNCOMPILED, needs_bwrap, on_machine

pytestmark = [pytest.mark.nightly, needs_bwrap]  # it installs all packages anew

MAX_BYTES = 600e6  # Polars alone has 130 MB, compiled Python 150
PIP = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
CACHE = Path.home() / ".cache" / "pip"
BASE = str(Path(sys.base_prefix, "bin", "python3"))
"""The interpreter of the image that the Dockerfile begins with."""


def instructions():
    """The lines of the Dockerfile, as instruction and argument."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line and line[0] != "#"]


def stage(number):
    """The instructions of a stage."""
    starts = [at for at, (name, _) in enumerate(instructions()) if name == "FROM"]
    return instructions()[starts[number] : ([*starts, None])[number + 1]]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """What the first stage leaves in /opt/asset-owners, built without Docker."""
    CACHE.mkdir(parents=True, exist_ok=True)
    prefix, source = (tmp_path_factory.mktemp(name) for name in ("prefix", "source"))
    ignored = shutil.ignore_patterns("__pycache__")
    for name, argument in stage(0):
        if name == "COPY":
            *files, target = argument.split()
            for file in files:
                here, there = PROGRAM / file, source / target / ("" if target != "./" else file)
                there.parent.mkdir(parents=True, exist_ok=True)
                if here.is_dir():
                    shutil.copytree(here, there, ignore=ignored, dirs_exist_ok=True)
                else:
                    shutil.copy(here, there)
        elif name == "RUN":
            program, *words = shlex.split(argument)
            program = BASE if program == "python" else program
            writable = {"/opt/asset-owners": prefix, str(CACHE): CACHE}
            environment = {**PIP, "PIP_CACHE_DIR": str(CACHE)}
            on_machine(program, *words, state=source, writable=writable, env=environment, network=True)
    return prefix


def test_the_image_holds_no_more_than_the_program_needs(image):
    assert sum(file.lstat().st_size for file in image.rglob("*")) < MAX_BYTES


@pytest.fixture
def machine(image, tmp_path):
    """How a command of the image is called."""
    (line,) = [argument for name, argument in stage(1) if name == "ENV"]
    environment = dict(word.split("=", 1) for word in shlex.split(line))
    return {"state": tmp_path, "installed": {"/opt/asset-owners": image}, "env": environment}


def test_the_command_of_the_image_serves(machine):
    (command,) = [argument for name, argument in stage(1) if name == "CMD"]
    url = "http://127.0.0.1:3000/server_info"
    on_machine("python", "-c", SERVICE, url, *yaml.safe_load(command), **machine)


def test_the_image_is_compiled(machine):
    assert on_machine("python", "-c", UNCOMPILED, **machine) == "\n"


def test_the_pod_of_a_cron_job_starts_a_run(machine):
    """There are no services there: the run ends with what the operator has to set."""
    (_, job) = yaml.safe_load_all((DEPLOY / "kubernetes/cronjob.yaml").read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    with pytest.raises(AssertionError, match=r'"error": ".*customer.yaml'):
        on_machine(*container["args"], **machine)
