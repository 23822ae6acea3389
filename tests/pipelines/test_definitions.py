"""What Dagster is given: it loads anywhere, one bad file hides nothing, and a change of the graph is seen."""

import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.utils import DISALLOWED_NAMES
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.secrets.env_file import get_env_var_dict

from assets_defs.run_request import INSTANCE_TAG, SCANNED, SINK
from assets_defs.tuning import TUNING_TABLES
from ownership.tables import INVENTORY_SERVICE, SEARCH_SERVICE
from pipelines.cli.results import errors
from pipelines.dagster_home import DAGSTER_YAML, warn_of_other_home
from pipelines.definitions import build_repository, define
from pipelines.jobs import MAINTENANCE
from resources.settings import load_instances
from tests.pipelines.in_memory import records
from tests.resources.samples import TENANT, instance_content

SERVICES = (SEARCH_SERVICE, INVENTORY_SERVICE)
PROJECT = Path(__file__).parents[2]
LOAD = """
import sys

def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        raise OSError(f"definitions must load without a network: {event} {arguments}")

sys.addaudithook(refuse)
from pipelines.cli.results import errors
from pipelines.definitions import definitions
print(definitions().job_names)
"""


def content(**changes: Any) -> dict[str, Any]:
    return instance_content(**{"name": "Head office", **changes})


@pytest.fixture
def instances(tmp_path):
    """Writes instance files into a folder and loads it."""

    def loaded(**files):
        for name, text in files.items():
            path = tmp_path / f"{name}.yaml"
            path.write_text(yaml.safe_dump(text) if isinstance(text, dict) else text)
        return at_once(tmp_path)

    return loaded


def at_once(folder):
    """All instances of a folder as Dagster would have them, were they not made one by one."""
    return dg.Definitions.merge(*map(define, load_instances(folder)))


def jobs(definitions):
    return {job.name: job for job in definitions.resolve_all_job_defs() if not job.name.startswith("__")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the environment says that instances are."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    (tmp_path / "instances").mkdir()
    return tmp_path / "instances"


@pytest.fixture
def many(folder):
    """Three instances, two files of one name and a broken one."""
    for number in range(3):
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(content(name=f"Customer {number}")))
    (folder / "same.yaml").write_text("# Customer 2 again\n" + yaml.safe_dump(content(name="CUSTOMER  2")))
    (folder / "broken.yaml").write_text("name: [")
    return folder


@pytest.mark.slow
def test_the_instances_folder_is_loaded_without_the_secrets_that_its_files_name(many):
    environment = {"ASSET_OWNERS_INSTANCES": str(many)}
    loaded = subprocess.run(  # noqa: S603  (our own command)
        [sys.executable, "-c", LOAD], check=True, capture_output=True, text=True, env=environment
    )
    assert "'customer_0__plan', 'customer_1__apply'" in loaded.stdout
    assert "DAGSTER_HOME is not set" in loaded.stderr


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("name", ["customer_1", "customer_1__apply"])
def test_a_runs_process_defines_the_instance_of_its_job_and_no_other(monkeypatch, name):
    """Dagster loads the code location again for each run."""
    defined = []

    def noted(instance):
        defined.append(instance.slug)
        return define(instance)

    monkeypatch.setattr("pipelines.definitions.define", noted)
    assert build_repository().get_job(name).name == name
    assert defined == ["customer_1"]


def test_all_instances_are_served_as_they_would_be_defined_together(many):
    served = build_repository()
    expected = at_once(many).get_repository_def()
    assert served.name == expected.name, "schedules would be taken for new ones, which are off"
    assert set(served.job_names) == {*expected.job_names, MAINTENANCE}
    on = {one.name: one.default_status.value == "RUNNING" for one in served.schedule_defs}
    assert on == dict.fromkeys((one.name for one in expected.schedule_defs), False) | {MAINTENANCE: True}
    assert set(served.assets_defs_by_key) == set(expected.assets_defs_by_key)
    assert set(served.asset_checks_defs_by_key) == set(expected.asset_checks_defs_by_key)
    for name in ("__ASSET_JOB", "customer_1"):
        ours, theirs = served.get_job(name), expected.get_job(name)
        assert {node.name for node in ours.nodes} == {node.name for node in theirs.nodes}


TWO = ("customer_0", "customer_1")


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    "selection",
    [
        {"asset_selection": {dg.AssetKey([slug, "inventory_hosts"]) for slug in TWO}},
        {"op_selection": [f"{slug}__inventory_hosts" for slug in TWO]},
    ],
    ids=["assets", "ops"],
)
def test_a_run_of_two_instances_is_refused_with_the_commands_that_make_two(selection):
    served = build_repository()
    commands = "    asset-owners run --instance customer_0\n    asset-owners run --instance customer_1"
    with pytest.raises(
        dg.DagsterInvalidSubsetError, match=f"Customer 0(.|\\n)* and Customer 1(.|\\n)*\\n{commands}"
    ):
        served.get_maybe_subset_job_def("__ASSET_JOB", **selection)


@pytest.mark.usefixtures("many")
def test_some_assets_of_one_instance_are_a_run_and_all_of_all_instances_fail_in_its_first_step():
    """The process of a run asks for the whole job before it asks for what was selected."""
    served = build_repository()
    assert served.get_maybe_subset_job_def("__ASSET_JOB", None, None, None).nodes
    one = {dg.AssetKey(["customer_0", "inventory_hosts"])}
    assert served.get_maybe_subset_job_def("__ASSET_JOB", asset_selection=one).nodes
    result = served.get_job("__ASSET_JOB").execute_in_process(instance=records(), raise_on_error=False)
    assert not result.success
    others = [each for each in errors(result) if "asset-owners run --instance customer_0; " not in each]
    assert all("broken.yaml" in each or "'customer_2'" in each for each in others), others


@pytest.mark.usefixtures("many")
def test_a_broken_file_and_two_of_one_name_say_why_on_each_asset_in_a_check_and_in_a_run():
    repository = build_repository()
    for name, words in {
        "broken": "broken.yaml",
        "customer_2": "'customer_2'",
        "same": "'customer_2'",
    }.items():
        # As they were started before the file was changed.
        for part in ("", "__plan", "__apply", "__undo", "__tuning"):
            earlier = {
                "resources": {f"{name}__scan": {"config": {"dry_run": True}}},
                "loggers": {"console": {}},
            }
            job = repository.get_job(name + part)
            result = job.execute_in_process(earlier, instance=records(), raise_on_error=False)
            (message,) = errors(result)
            assert (words in message, words in str(job.description)) == (True, True)
            assert str(job.description).startswith(
                "No run of this instance starts until its file is corrected"
            )
        specs = [spec for one in {*repository.assets_defs_by_key.values()} for spec in one.specs]
        seen = {spec.key.path[1]: words in str(spec) for spec in specs if spec.key.path[0] == name}
        assert seen == dict.fromkeys((*SCANNED, *TUNING_TABLES, *SERVICES), True)
        resources = repository.get_top_level_resources()
        shown = {key: words in str(one.description) for key, one in resources.items() if key.startswith(name)}
        assert shown == {f"{name}__{key}": True for key in ("scan", "search", "inventory")}
        sensor = repository.get_sensor_def(f"{name}__instance_file_is_valid")
        assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
        told: Any = sensor.evaluate_tick(dg.build_sensor_context(repository_def=repository))
        (check,) = told.asset_events
        assert (check.asset_key.path[1], check.passed, words in check.description) == (SINK, False, True)
        again = dg.build_sensor_context(repository_def=repository, cursor=told.cursor)
        assert sensor.evaluate_tick(again).asset_events == []
    with pytest.raises(
        dg.DagsterInvariantViolationError, match=r"no job customer_3;.*reload the code location"
    ):
        repository.get_job("customer_3")


ALL, WRITES = "__ASSET_JOB", dg.AssetKey(["head_office", "owner_writes"])
HOLD = dg.AssetCheckKey(dg.AssetKey(["head_office", "owner_decisions"]), "written_owners_hold")


@pytest.mark.parametrize(
    ("file", "name"), [("head_office", "Head office"), ("hq", "Head office")], ids=["slug", "other name"]
)
@pytest.mark.parametrize(
    ("job", "some"),
    [
        ("head_office", {}),
        ("head_office__apply", {}),
        (ALL, {"asset_selection": {WRITES}}),
        (ALL, {"asset_check_selection": {HOLD}}),
    ],
    ids=["scan", "apply", "assets", "checks"],
)
def test_the_process_of_a_run_whose_file_has_become_invalid_says_what_is_wrong_in_it(
    folder, file, name, job, some
):
    """It loads the file again, and was given the settings of the job as that was."""
    (folder / f"{file}.yaml").write_text(yaml.safe_dump(content(name=name)))
    assert build_repository().get_maybe_subset_job_def(job, **some).nodes
    (folder / f"{file}.yaml").write_text(yaml.safe_dump(content(name=name, urll="x")))
    with pytest.raises(dg.DagsterError, match=f"{file}.yaml: urll: unknown key"):
        build_repository().get_maybe_subset_job_def(job, **some)
    served = build_repository()
    if job != ALL:
        assert job in served.job_names
        assert served.get_maybe_subset_job_def(job).nodes, "a code server can launch the job that fails"


def test_the_page_of_a_table_of_tuning_names_what_fills_it(instances):
    specs = {spec.key.path[1]: spec for spec in instances(one=content()).resolve_all_asset_specs()}
    said = {name: one.description for name, one in specs.items() if one.group_name == "head_office__tuning"}
    assert all("Filled by `asset-owners tune" in text for text in said.values())
    by_hand = [name for name, text in said.items() if "the job `head_office__tuning` fills it" not in text]
    assert by_hand == ["audit_sample"], "only a person draws one"


PARTS = ["apply", "apply plan", "undo", "undo run", "plan", "sink", "writes", "cannot be used"]
PARTS += ["logons", "logon checks", "inventory checks", "owner checks", "blocking check"]
PARTS += ["scan", "tables", "search", "inventory", "owner decisions", "owner writes", "tuning"]
"""What the parts of an instance are called, as a person would write it in a name."""


@pytest.mark.jobs  # it takes as long
def test_an_instance_may_be_called_like_a_part_of_another_one(instances):
    """Nor do files hide others that cannot be used, or are named by words that Dagster keeps for itself."""
    words = {word for word in DISALLOWED_NAMES if word == word.lower()}
    beside = {f"f{number}": content(name=f"demo {part}") for number, part in enumerate(PARTS)}
    refused = {f"{word}_1": content(name=word) for word in words}
    broken = dict.fromkeys([*words, *(f"demo_{part.replace(' ', '_')}__broken" for part in PARTS)], "")
    definitions = instances(demo=content(name="demo"), **beside, **refused, **broken)
    dg.Definitions.validate_loadable(definitions)  # whatever is called alike is an error
    names = set(jobs(definitions))
    slugs = {f"demo_{part.replace(' ', '_')}" for part in PARTS}
    assert {"demo", "demo__apply", "demo__undo", *slugs, *refused} <= names
    assert {f"{name}_broken" for name in (*slugs, *words)} <= names


def test_a_tick_starts_one_run_over_the_look_back_window_and_is_off_until_switched_on(instances):
    definitions = instances(
        one=content(scan={"timezone": "Europe/Berlin", "lookback_days": 30, "schedule": "30 0 * * *"})
    )
    schedule = definitions.resolve_schedule_def("head_office")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 0 * * *", "Europe/Berlin")
    for words in (f", tenant {TENANT}. It", "more than 10,000 hosts", "20 failed writes in a row"):
        assert words in schedule.description
    # Half past midnight in Berlin, still the day before in UTC.
    tick = dg.build_schedule_context(scheduled_execution_time=datetime(2025, 6, 30, 22, 30, tzinfo=UTC))
    (request,) = schedule.evaluate_tick(tick).run_requests or []
    assert request.tags["dagster/partition"] == "2025-07-01"
    assert request.tags["asset_owners/window"] == "2025-06-02/2025-07-01"
    resources = {"head_office__scan": {"config": {"refetch": False}}}
    assert request.run_config == {"loggers": {"console": {}}, "resources": resources}
    assert dg.validate_run_config(jobs(definitions)["head_office"], request.run_config)


def test_the_workspace_and_the_project_name_the_same_definitions():
    """A [tool.dagster] or [tool.dg] table makes Dagster ignore workspace.yaml when it is started here."""
    (loaded,) = yaml.safe_load((PROJECT / "workspace.yaml").read_text())["load_from"]
    tool = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]
    project, dg_project = tool["dagster"], tool["dg"]["project"]
    assert loaded["python_module"] == {
        "module_name": project["module_name"],
        "location_name": project["code_location_name"],
    }
    assert dg_project["code_location_target_module"] == project["module_name"] == "pipelines.definitions"
    assert dg_project["code_location_name"] == project["code_location_name"]


def test_dagsters_own_programs_find_the_home_of_a_checkout(tmp_path, monkeypatch):
    """They read `.env`, whose values would win over those of the environment."""
    for variable in ("ASSET_OWNERS_HOME", "DAGSTER_HOME"):
        monkeypatch.delenv(variable, raising=False)
    makefile = ("make", "--silent", "--file", PROJECT / "Makefile", f"VENV={sys.prefix}")
    subprocess.run([*makefile, "--old-file", f"{sys.prefix}/.installed", ".env"], check=True, cwd=tmp_path)  # noqa: S603
    assert get_env_var_dict(str(tmp_path)) == {"DAGSTER_HOME": str(tmp_path / "var" / "dagster")}
    assert (tmp_path / "var" / "dagster" / "dagster.yaml").read_text() == DAGSTER_YAML
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    assert get_env_var_dict(str(tmp_path)) == {"DAGSTER_HOME": "/elsewhere"}


@pytest.mark.parametrize(
    ("settings", "warns"),
    [(DAGSTER_YAML, False), ("telemetry: {enabled: false}", True), ("", True), (None, True)],
)
def test_a_home_of_dagster_without_our_settings_is_warned_of(tmp_path, monkeypatch, caplog, settings, warns):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    if settings is not None:
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "other"))
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "dagster.yaml").write_text(settings)
    warn_of_other_home(INSTANCE_TAG)
    assert (f"Set it to {tmp_path / 'dagster'}" in caplog.text) == warns


def graph(definitions: dg.Definitions) -> dict[str, Any]:
    """What of the definitions a reviewer should see change; `docs tables` has the columns."""
    repository, found = definitions.get_repository_def(), jobs(definitions)
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    kinds: dict[str, list[str]] = {}
    for name in sorted(specs):
        kinds.setdefault(", ".join(sorted(specs[name].kinds)) or "none", []).append(name)
    options = found["corp"].resource_defs["corp__scan"].config_schema.config_type.fields
    return {
        "assets": {
            name: [one.group_name, *sorted(dep.asset_key.to_user_string() for dep in one.deps)]
            for name, one in specs.items()
        },
        "kinds": kinds,
        "partitions": {name: str(one.partitions_def) for name, one in specs.items() if one.partitions_def},
        "checks": sorted(key.to_user_string() for key in repository.asset_checks_defs_by_key),
        "jobs": {
            name: {
                "steps": sorted(node.name for node in job.nodes),
                "resources": sorted(job.resource_defs),
                "tags": dict(job.run_tags),
            }
            for name, job in found.items()
        },
        "schedules": {
            one.name: [one.cron_schedule, one.execution_timezone, one.job_name]
            for one in repository.schedule_defs
        },
        "options": {name: [one.config_type.key, one.default_value] for name, one in options.items()},
    }


def test_the_graph_is_the_one_that_was_reviewed(instances):
    since_first_day = content(name="Corp", keep={"evidence_days": 36_500}, scan={"first_day": "2020-01-01"})
    defined = instances(one=since_first_day)
    reviewed = Path(__file__).with_name("graph.yaml").read_text(encoding="utf-8")
    assert graph(defined) == yaml.safe_load(reviewed)
    for spec in defined.resolve_all_asset_specs():
        table = f"warehouse.{'.'.join(spec.key.path)}" if spec.kinds else None
        assert spec.metadata.get("dagster/table_name") == table


@pytest.mark.parametrize(
    ("schedule", "hours"),
    [
        ("0 5 * * *", 24 + 1 + 2),
        ("30 5 * * 1-5", 72 + 1 + 2),
        ("0 2 29 2 *", (4 * 365 + 1) * 24 + 2),
        (None, None),
    ],
)
def test_results_are_stale_two_hours_after_the_schedule_has_paused_longest(instances, schedule, hours):
    """Over a weekend, and the night that has an hour more."""
    scan = {"schedule": schedule, "timezone": "Europe/Berlin"}
    specs = instances(one=content(scan=scan)).resolve_all_asset_specs()
    stale = {
        "/".join(spec.key.path): spec.freshness_policy.fail_window for spec in specs if spec.freshness_policy
    }
    found = {table: window.to_timedelta() for table, window in stale.items()}
    assert found == ({"head_office/owner_decisions": timedelta(hours=hours)} if hours else {})


@pytest.mark.usefixtures("many")
@pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars`")
def test_the_page_of_resources_shows_where_the_services_are_and_who_uses_them():
    served = RepositorySnap.from_def(build_repository())
    shown = {one.name: one for one in served.resources or () if one.name.startswith("customer_1__")}
    values = {name: one.configured_values for name, one in shown.items()}
    assert values["customer_1__search"] == {"place": '"https://search.example:9200, index logs-*"'}
    assert values["customer_1__inventory"] == {"place": f'"https://inventory.example, tenant {TENANT}"'}
    for one in shown.values():
        assert {key.path[0] for key in one.asset_keys_using} == {"customer_1"}


def switches(config, path=()):
    """The paths of all fields of a launchpad."""
    for name, field in getattr(config, "fields", {}).items():
        yield (*path, name)
        yield from switches(field.config_type, (*path, name))


def test_a_launchpad_offers_its_own_switches_and_a_dry_run_once(instances):
    found = jobs(instances(one=content(name="One"), two=content(name="Two")))
    for op in ("apply_plan", "undo_run"):
        job = found[f"one__{op.partition('_')[0]}"]
        with pytest.raises(dg.DagsterInvalidConfigError, match='Missing required config entry "ops"'):
            dg.validate_run_config(job, {})
        chosen = dg.validate_run_config(job, {"ops": {f"one__{op}": {"config": {"run_id": "r"}}}})
        assert "console" in chosen["loggers"]
    shown = {name: {*job.metadata} for name, job in found.items()}
    assert {name for name, facts in shown.items() if {"schedule", "runs"} & facts} == {"one", "two"}
    assert all("inventory service" in facts for facts in shown.values())
    for name, job in found.items():
        paths = list(switches(job.run_config_schema.config_type))
        slug, other = ("one", "two") if name.startswith("one") else ("two", "one")
        offered = {path[1] for path in paths if path[0] == "resources" and len(path) == 2}
        assert not {key for key in offered if key.startswith(other)}, "another instance's resources"
        assert ("wrong" in {path[-1] for path in paths}) == name.endswith("__undo")
        dry = [path for path in paths if path[-1] == "dry_run"]
        if name.endswith("__tuning"):
            assert dry == [], "it writes nothing anyway"
            continue
        assert len(dry) == 1, (name, dry)
        is_scan = name in {slug, f"{slug}__plan"}
        assert dry[0][0] == ("resources" if is_scan else "ops")
        if is_scan:
            replaced = job.get_run_config_for_partition_key("2026-01-31").get("resources")
            plans = {f"{slug}__scan": {"config": {"dry_run": True}}}
            assert replaced == (None if name == slug else plans), "what is typed stays once a day is chosen"
