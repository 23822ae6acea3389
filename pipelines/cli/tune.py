"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better."""

import json
import logging
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated

import polars as pl

from ownership.decisions import HAS_OWNER
from ownership.names import counted, printable
from ownership.tuning.confidence import draw_sample, drawn_alike, first_drawn, last_drawn, with_answers
from pipelines.cli.files import reading_sheet, require_file, write_file
from pipelines.cli.options import (
    InstanceFile,
    Json,
    file_option,
    flag,
    holding,
    note,
    number,
    own_tables,
    persons_of,
    print_lines,
    stored_tables,
)
from pipelines.dagster_gaps.log_lines import LOGGER
from pipelines.dagster_home import dagster_instance
from reports import tuning
from reports.sheets import (
    answered,
    as_on_sheets,
    as_sample,
    audit_in_words,
    how_to_answer,
    sheet,
    sheet_content,
)
from resources.errors import AssetOwnersError, ConfigurationError
from resources.search.source import counted_as
from resources.settings import Instance, command_line, home, load_instance, part_name, system_user
from resources.store.retention import (
    audited_plans,
    decided_with,
    keeps_decisions,
    recent_answers,
    runs_by_file,
)
from resources.store.tables import Tables, short_run_id


def draw(
    path: Path, number: int, *, written: bool, seed: int | None, out: Path | None, as_json: bool
) -> None:
    """Draw planned owners of the last run by chance, store them, and write the sheet; a person gets a file.

    `written`: of those that were written since the last draw, or else ever, and that hosts still have.
    """
    from assets_defs.tuning import table_filled

    instance = load_instance(path)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    if out is None and sys.stdout.isatty() and not as_json:
        names = (f"audit-{seed}{f'-{copy}' * (copy > 1)}.xlsx" for copy in count(1))
        out = next(path for path in map(Path, names) if not path.exists())
    with holding(own_tables(instance)) as tables:
        run_id, decisions, origin = (_written if written else _last_plan)(instance, tables)
        window, rules = decided_with(tables, run_id)
        # Earlier answers count on if they are about the same rules and window (rules 9.8), and each no does.
        recent = recent_answers(tables, instance.keep.history_days)
        by, now = counted_as(instance), datetime.now(UTC)
        alike = drawn_alike(recent, window, rules, by)
        no = recent.filter(~pl.col("right")).select("host_id", resolved_owner="user_id")
        earlier = tables.read("audit_sample").collect()
        again = first_drawn(earlier.filter(seed=seed), number, seed=seed)
        known = pl.concat([alike, again])
        not_answered = decisions.join(known, on="host_id", how="anti").join(no, on=no.columns, how="anti")
        asked = draw_sample(not_answered, number - again.height, seed=seed)
        drawn = as_sample(asked, seed=seed, drawn_at=now, window=window, rules=rules, counted=by)
        sample = pl.concat([again, as_on_sheets(drawn, earlier)])
        if sample.is_empty():
            of_all = command_line(instance, "tune", "--audit", str(number), "--written")
            more = "" if written else f". To draw from all that are written: {of_all}"
            raise AssetOwnersError(f"Nothing to draw: each owner {origin} has an answer already{more}")
        table = sheet(sample, tables.read("inventory_users", run_id=run_id).collect())
        if out and out.exists():  # it may hold answers
            raise ConfigurationError(f"--audit-file: {out} exists and is not replaced; name another file")
        others = earlier.join(sample, on=("host_id", "user_id"), how="anti")
        stored = pl.concat([others, sample])
        tables.write("audit_sample", stored)
        if out:
            is_workbook = out.suffix.lower() == ".xlsx"
            write_file("--audit-file", out, sheet_content(table, is_workbook=is_workbook))
        with dagster_instance(home()) as dagster:  # held, so that nothing is stored of who leaves meanwhile
            dagster.report_runless_asset_event(table_filled(instance, "audit_sample", stored))
    planned = decisions.filter(action="write").height
    some = f"{sample.height:,} of " if sample.height < planned else ""
    fewer = "the others were asked about already" if sample.height < planned else "there are no more"
    give_back = command_line(instance, "tune", "--audit-answers", str(out or "FILE"))
    lines = [
        f"{some}{counted(planned, 'owner')} {origin}, drawn by chance.",
        f"The draw is stored: the same command with --seed {seed} writes this sheet again.",
        *([f"Not {number:,}: {fewer}."] if sample.height < number else ()),
        *how_to_answer(sample),
        f"Then give the sheet back:\n    {give_back}",
    ]
    if as_json:
        content = {"instance": instance.name, "run_id": run_id, "seed": seed, "planned": planned}
        print(json.dumps(content | {"sample": json.loads(sample.write_json())}))
    elif out:
        print_lines([f"Wrote {out}: {lines[0]}", *lines[1:]])
    else:
        sys.stdout.write(sheet_content(table, is_workbook=False).decode())
        note("\n".join(lines))


def read_answers(path: Path, files: Sequence[Path], precision: float) -> tuple[str, list[str]]:
    """Store the answers of sheets; return the run whose plan they are about, and what they say of it."""
    instance = load_instance(path)
    for file in files:
        require_file("--audit-answers", file)
    with holding(own_tables(instance)) as tables:
        stored = tables.read("audit_sample").collect()
        # Of a host that was drawn again with another owner, the last draw is on the sheet.
        before = sample = stored.drop_nulls("seed").unique("host_id", keep="last", maintain_order=True)
        if sample.is_empty():
            first = command_line(instance, *tuning.audit_to_draw())
            raise ConfigurationError(f"--audit-answers: {instance.name} has no audit yet; draw one: {first}")
        run_id, lines = sample["run_id"].item(-1), []
        users = tables.read("inventory_users", run_id=run_id).collect()
        persons = persons_of(tables.view(run_id), instance.rules.as_rules())
        for file in files:
            with reading_sheet("--audit-answers", file) as content:
                sample, notes = answered(content, sample, users, persons)
            lines += [f"{file}: {note}" for note in notes]
        is_new = (pl.col(name).ne_missing(before[name]) for name in ("right", "instead_id", "contradicted"))
        answered_now = pl.when(pl.any_horizontal(is_new))
        sample = sample.with_columns(
            answered_at=answered_now.then(pl.lit(datetime.now(UTC))).otherwise("answered_at"),
            answered_by=answered_now.then(pl.lit(system_user())).otherwise("answered_by"),
        )
        others = stored.join(sample, on=["host_id", "user_id"], how="anti")
        tables.write("audit_sample", pl.concat([others, sample]))
    asked = last_drawn(sample)
    decisions = audited_plans(tables, asked)
    planned = with_answers(decisions, asked).height if decisions.height else 0
    plans = [tables.written_and_undone(plan) for plan in {run_id, *asked["run_id"]}]
    written, undone = sum(number for number, _ in plans), pl.concat(each for _, each in plans)
    words = audit_in_words(asked, planned, users, written=written, undone=undone, precision=precision)
    return run_id, [*words, *lines]


def _last_plan(instance: Instance, tables: Tables) -> tuple[str, pl.DataFrame, str]:
    """Return the last run that planned any owner, also a dry run, what it decided, and words for that."""
    for run_id in runs_by_file(tables):
        decisions = tables.read_own("owner_decisions", run_id).filter(action="write")
        if decisions.height:
            # Of a plan that was applied in part the rest, which can still be left as it is.
            applied = tables.followed_plan(run_id).filter(pl.col("outcome") != "planned")
            rest = decisions.join(applied, on="host_id", how="anti")
            return run_id, rest if rest.height else decisions, f"planned by run {short_run_id(run_id)}"
    plan = command_line(instance, "run", "--dry-run")
    raise AssetOwnersError(f"{instance.name} has no plan to draw from yet; make one: {plan}")


def _written(instance: Instance, tables: Tables) -> tuple[str, pl.DataFrame, str]:
    """Return the same for the owners written since the last draw or, if there are none, ever.

    All were decided by the rules of that run, the last one, and hosts still have them.
    """
    drawn_at = tables.read("audit_sample").drop_nulls("seed").collect()["drawn_at"].max()
    owners = tables.read("current_owners").filter(HAS_OWNER, source="asset-owners")
    written = owners.sort("since", descending=True).collect()
    since = written.filter(pl.col("since") > drawn_at) if drawn_at else written.clear()
    ours, words = (written, "written") if since.is_empty() else (since, "written since the last draw")
    decided_by = {run_id: tables.decided_by(run_id) for run_id in ours["run_id"].unique()}
    ours = ours.with_columns(pl.col("run_id").replace(decided_by))
    kept = [one for one in ours["run_id"].unique(maintain_order=True) if keeps_decisions(tables, one)]
    if not kept:
        wanted = "an owner that a run wrote, and whose decision is kept"
        raise AssetOwnersError(f"{instance.name}: --written: no host has {wanted}")
    rules = decided_with(tables, kept[0])[1].of_evidence
    alike = [run_id for run_id in kept if decided_with(tables, run_id)[1].of_evidence == rules]
    decisions = pl.concat(tables.read_own("owner_decisions", run_id) for run_id in alike)
    return kept[0], decisions.filter(action="write").join(ours, on=("host_id", "run_id"), how="semi"), words


def tune(
    path: InstanceFile,
    *,
    target_precision: Annotated[
        float,
        number("Share of right owners that proposed settings must reach, such as 0.95.", least=0.5, most=1),
    ] = 0.90,
    keep: Annotated[float, number("Percent of the writes that they must keep.", least=0, most=100)] = 90,
    audit: Annotated[int | None, number("Draw this many planned owners, for people to check.")] = None,
    written: Annotated[
        bool,
        flag(
            "--written",
            "With --audit: draw from the owners written since the last draw, or else from all written.",
        ),
    ] = False,
    seed: Annotated[
        int | None, number("Write the sheet of that draw again.", least=0, default="by chance")
    ] = None,
    audit_file: Annotated[
        Path | None,
        file_option(
            "The sheet to write, CSV or .xlsx; never an existing one.",
            default="audit-SEED.xlsx; in a pipe standard output",
        ),
    ] = None,
    audit_answers: Annotated[
        list[Path] | None,
        file_option(
            "Read this sheet, with yes or no in its column right, and then estimate; may be repeated."
        ),
    ] = None,
    as_json: Json = False,
) -> int | None:
    """Run the job for tuning and print its result, or draw an audit; return the exit status.

    It writes no owner. Before the first run that writes: draw 50 planned owners with --audit, let somebody
    who knows answer, and give the answers back with --audit-answers.

    Example: --instance NAME --target-precision 0.95
    """
    if audit is None and (seed is not None or audit_file or written):
        raise ConfigurationError("--written, --seed and --audit-file go with --audit N, which draws")
    if audit is not None:
        if audit_answers:
            raise ConfigurationError("--audit draws anew: give --audit-answers in a command of its own")
        return draw(path, audit, written=written, seed=seed, out=audit_file, as_json=as_json)
    aim = tuning.Aim(target_precision, keep)
    told = read_answers(path, audit_answers, target_precision) if audit_answers else (None, [])
    audited, audit_words = told
    instance, tables = stored_tables(path)
    from assets_defs.evidence import written_but_wrong
    from assets_defs.tuning import describe_confidence, how_sure, judged_decisions, recommended_dry_run
    from pipelines.cli.results import errors, execute, print_warnings

    result = execute(instance, part_name(instance, "tuning"), {})
    if not result.success:
        raise AssetOwnersError("\n".join(errors(result)))
    rules, lines = instance.rules.as_rules(), tables.read("threshold_backtest").collect()
    planned = judged_decisions(tables)
    decided_by = planned["run_id"].item(0)
    window, _ = decided_with(tables, decided_by)
    suggestions = tables.read("suggestions").collect()
    now = tuning.line_of(lines, rules, window_days=window.days)
    if as_json:
        best = tuning.best_line(lines, now, aim)
        days = {"from": window.first.isoformat(), "to": window.last.isoformat(), "days": window.days}
        compared = {
            "now": tuning.as_values(now),
            "best": best and tuning.as_values(best),
            "tried": lines.height,
            "suggestions": suggestions.to_dicts(),
        }
        print(json.dumps({"instance": instance.name, "window": days, **compared}))
        return 0
    days_in_words = f"{window.first} to {window.last} ({window.days} days)"
    last = ", the one in the tables" if tables.published_run() == decided_by else ""
    by = f"decided by run {short_run_id(decided_by)}{last}"
    brief = not logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    claim = [] if audited else how_sure(instance, tables, now, brief=brief)
    settings = tuning.settings_in_words(lines, now, rules, aim, claim=claim)
    if compare := recommended_dry_run(instance):
        settings += ["", f"The recommended settings are stricter than all of these. Compare:\n    {compare}"]
    found = [
        tuning.suggestions_in_words(suggestions, rules),
        tuning.drift_in_words(tables.read("ownership_drift").collect()),
    ]
    if audited and (audited != decided_by or now["wrong_measure"] != "audit"):
        # The rest is about another plan, or does without the answers: it would contradict the audit.
        planned = tables.read_own("owner_decisions", audited)
        window = decided_with(tables, audited)[0] if planned.height else window
        settings, found = [], [[f"What other settings lead to now: {command_line(instance, 'tune')}"]]
    parts = [
        audit_words,
        ["\n    ".join(written_but_wrong(instance, tables)[1])],
        [f"{printable(instance.name)}: {days_in_words}, {by}"] if settings else [],
        settings,
        describe_confidence(instance, tables, audited or decided_by, planned, window, aim),
        *found,
    ]
    print_lines("\n\n".join("\n".join(lines) for lines in parts if any(lines)).splitlines())
    print_warnings()
    return 0
