"""A machine as the documents describe it: the program in /opt, another user, and a root that is read-only."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2]
DEPLOY = PROGRAM / "deploy"
MADE = {"etc", "opt", "tmp", "proc", "dev", "var", "run"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def may_make_namespaces():
    tried = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return shutil.which("bwrap") and subprocess.run(tried, check=False, capture_output=True).returncode == 0  # noqa: S603


needs_bwrap = pytest.mark.skipif(
    not may_make_namespaces(), reason="bwrap (Debian: bubblewrap) is missing, or may not work here"
)

# Runs a service until it answers at an address, and ends it as systemd does.
SERVICE = """
import os, signal, subprocess, sys, time, urllib.request
url, *command = sys.argv[1:]
service = subprocess.Popen(command)
while True:
    assert service.poll() is None, service.returncode
    try:
        print(urllib.request.urlopen(url).read().decode())
        break
    except OSError:
        time.sleep(0.5)
asked = time.monotonic()
service.send_signal(signal.SIGTERM)
service.wait()
assert time.monotonic() - asked < 10, time.monotonic() - asked
"""


# Prints what of the program and its packages each process would have to compile.
UNCOMPILED = """
import importlib.util, pathlib, sys, sysconfig, pipelines.cli.results
files = [module.__file__ for module in sys.modules.values() if getattr(module, "__cached__", None)]
assert pipelines.__file__ in files
files += pathlib.Path(sysconfig.get_path("purelib")).rglob("*.py")
print(*(file for file in files if not pathlib.Path(importlib.util.cache_from_source(file)).exists()))
"""


def on_machine(*command, state, installed=None, writable=None, env=None, network=False):
    """What a command prints there; it works in /var/lib/asset-owners, which is `state` here.

    `installed` holds what the administrator put there, and `writable` what the command may change: path on
    the machine to path here.
    """
    binds = [path for path in Path("/").iterdir() if path.name not in MADE] + list(Path("/etc").iterdir())
    # What the environment of this checkout points to, which may lie where the machine has its own folder.
    own = {str(path): path for path in (PROGRAM, Path(sys.base_prefix))}
    places = {**own, "/opt/asset-owners": PROGRAM, **(installed or {})}
    shown = {**{str(path): path for path in binds}, **places}
    machine = ["bwrap", "--unshare-all", "--die-with-parent", "--uid", "4321", "--gid", "4321", "--clearenv"]
    machine += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]  # noqa: S108
    for place, path in shown.items():
        machine += ["--ro-bind", str(path), place]
    for place, path in (writable or {}).items():
        machine += ["--bind", str(path), place]
    machine += ["--share-net"] if network else []
    machine += ["--bind", str(state), "/var/lib/asset-owners", "--chdir", "/var/lib/asset-owners"]
    machine += ["--remount-ro", "/"]
    for name, value in {"PATH": PATH, **(env or {})}.items():
        machine += ["--setenv", name, value]
    ended = subprocess.run(  # noqa: S603  (our own programs)
        [*machine, *command], check=False, capture_output=True, text=True, timeout=1500
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
