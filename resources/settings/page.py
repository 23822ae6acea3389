"""The guide to configuration: the instance file and the environment as a page, from the settings models."""

from collections.abc import Iterable, Iterator, Sequence

from resources.settings.schema import Section, Setting, as_yaml, instance_settings

_HEAD = """\
# Configuration

Generated from `resources/settings/models.py` by `make docs`; do not edit.

One YAML file describes one instance: one index, one inventory tenant, one schedule.
`asset-owners init FILE` writes one with every key in it, `asset-owners check --instance FILE` tries it on
both services without writing.

- An unknown key is an error that names the nearest known one; a key written twice is one, too.
- Paths of files are relative to the instance file's folder; `~` is your home.
- `platform.contract` may also be the path of a YAML file with the contract's keys, which several instances
  can share. Keep it out of the instances folder (a subfolder will do): each `*.yaml` and `*.yml` right there
  is taken for an instance.
- Only regular files are read, of up to 262,144 characters and 20,000 values; what an alias stands for counts
  each time.
- Dagster reads the files when it loads the code location: after a change, choose *Reload* on its Deployment
  page. The command line reads the file each time.
- `url`, `index`, `query`, the document fields and `scan.timezone` decide what a day's counts are. After a
  change of one of them the next run fetches the days of its window anew.
- Editors complete keys and show their meaning with [instance.schema.json](instance.schema.json). `init`
  writes the line that tells them; in other files begin with `# yaml-language-server: $schema=` and its path
  or address.
- Examples for other logons: [Linux](examples/linux.yaml), [macOS](examples/macos.yaml),
  [Windows by a forwarder](examples/windows-forwarder.yaml), where `agent.name` is the collector, and
  [Windows by kind of logon](examples/windows-interactive.yaml), where those at the keyboard count more.
"""

_SECRETS = """\
## Secrets

`password`, `platform.password`, `platform.mfa_secret` and the values of `cookies` say where a secret lies,
never the secret itself:

- `{env: VARIABLE}`: an environment variable of the process that runs the job, which is the command, or
  Dagster's webserver and daemon.
- `{file: PATH}`: a file, such as a mounted Docker or Kubernetes secret.

A final line break of a secret is ignored. They are read when a run starts: a changed file counts from the
next run on, a changed variable once the process has been started again. A secret in clear text is refused.
"""

_VARIABLES = (
    (
        "`ASSET_OWNERS_HOME`",
        "`./var`",
        "folder of the tables, the catalogue and Dagster's home",
        "`/srv/asset-owners`",
    ),
    (
        "`ASSET_OWNERS_TABLES`",
        "`ASSET_OWNERS_HOME/tables`",
        "where the tables lie: a folder, or the URL of an object store (see scaling.md)",
        "`s3://bucket/asset-owners`",
    ),
    (
        "`ASSET_OWNERS_JOURNAL`",
        "a file for each instance below `ASSET_OWNERS_HOME/tables`",
        "PostgreSQL database of the journal of writes, for several machines (see scaling.md)",
        "`postgresql://asset_owners@db.corp.example/asset_owners`",
    ),
    (
        "`ASSET_OWNERS_INSTANCES`",
        "`ASSET_OWNERS_HOME/instances`",
        "folder whose `*.yaml` and `*.yml` files Dagster loads",
        "`/etc/asset-owners`",
    ),
    (
        "`ASSET_OWNERS_ANALYSTS`",
        "none",
        "group of users who may read tables and catalogue; who runs the job must be in it",
        "`analysts`",
    ),
    (
        "`ASSET_OWNERS_LOG`",
        "`text`",
        "form of the log on standard error: `text`, or `json` for one JSON object a line",
        "`json`",
    ),
    (
        "`DAGSTER_HOME`",
        "`ASSET_OWNERS_HOME/dagster`",
        "Dagster's runs, schedules and event log; its webserver and daemon know no default: export it",
        "`/srv/asset-owners/dagster`",
    ),
    (
        "`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`",
        "none",
        "proxy to services whose address begins with https, with http, with either",
        "`http://proxy.corp.example:3128`",
    ),
    ("`NO_PROXY`", "none", "hosts and domains reached without a proxy", "`localhost,.corp.example`"),
    ("what a secret's `env` names", "none", "the secret", "`SEARCH_PASSWORD`"),
)

_CERTIFICATES = """
`REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE` have no say in which certificates are trusted: `ca_file` names an
authority, and without it the operating system's own are trusted.
"""


def configuration_page() -> str:
    """Return the page as Markdown: each key with default, unit, meaning and an example."""
    return "\n".join(
        [
            _HEAD,
            *_section(instance_settings()),
            _SECRETS,
            "## Environment variables\n",
            *_table("variable", "default", "meaning", "example", rows=_VARIABLES),
            _CERTIFICATES,
        ]
    )


def _section(section: Section) -> Iterator[str]:
    yield f"## `{section.key}`: {section.meaning}\n" if section.key else "## The instance\n"
    yield from _table(
        "key", "default", "unit", "meaning", "example", rows=[_row(setting) for setting in section.settings]
    )
    yield ""
    for inner in section.sections:
        yield from _section(inner)


def _row(setting: Setting) -> tuple[str, ...]:
    return (
        f"`{setting.name}`",
        "**required**" if setting.required else f"`{as_yaml(setting.default)}`",
        setting.unit,
        f"{setting.meaning} ({setting.limits})" if setting.limits else setting.meaning,
        f"`{as_yaml(setting.example)}`",
    )


def _table(*head: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"
