"""The sheet of an audit, as a spreadsheet gives it back."""

import csv
import io
from functools import cache
from zipfile import ZIP_DEFLATED, ZipFile

import polars as pl
import pytest
from xlsxwriter import Workbook

from ownership.declaration import validated
from ownership.persons import Persons
from ownership.rules import Rules
from ownership.tables import AuditSample
from ownership.tuning.confidence import MIN_ANSWERED, answers_missing, draw_sample, drawn_alike, last_drawn
from reports.sheets import (
    MAX_BYTES,
    SheetError,
    answered,
    answered_wrong,
    as_sample,
    audit_in_words,
    how_to_answer,
    sheet,
    sheet_content,
)
from tests.ownership.builders import NOW, PEOPLE, WINDOW, counts, decide, host, hosts, user, users
from tests.resources.writeback.world import plan, values


@cache
def decided(*names):
    """Six hosts, one with a name that a spreadsheet could run, or those with these names."""
    names = names or ("=1+1", "pc-1", "pc-2", "pc-3", "pc-4", "pc-5")
    logons = counts(*((name, "ann", 5) for name in names), ("pc-1", "bob", 2))
    return decide(logons, PEOPLE, hosts(*(host(f"00{n}", name) for n, name in enumerate(names))))


def drawn(decisions, number, seed=7):
    drawn = draw_sample(decisions, number, seed=seed)
    return as_sample(drawn, seed=seed, drawn_at=NOW, window=WINDOW, rules=Rules(), counted="as now")


def made(*names, number=5, seed=7):
    """A sample of them, and its sheet."""
    sample = drawn(decided(*names), number, seed)
    return sample, sheet_content(sheet(sample, PEOPLE), is_workbook=False).decode()


def read(content, sample, users=PEOPLE):
    return answered(content, sample, users, Persons(Rules(), [("inventory_users", users)]))


def words_of(sample, planned, *, written=0, undone=None, precision=0.9):
    undone = pl.DataFrame({"right": []}, schema={"right": pl.Boolean}) if undone is None else undone
    return audit_in_words(sample, planned, PEOPLE, written=written, undone=undone, precision=precision)


def filled_in(text, change, separator=","):
    """The sheet with its rows changed, as a spreadsheet would write it."""
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    for number, row in enumerate(rows):
        change(number, row)
    box = io.StringIO()
    writer = csv.DictWriter(box, rows[0].keys(), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return box.getvalue().encode()


def test_the_same_owners_are_drawn_for_a_seed_and_each_as_often():
    assert made()[0].equals(made()[0])
    decisions = decided()
    draws = (draw_sample(decisions, 5, seed=seed)["host_id"] for seed in range(200))
    left_out = [set(range(6)) - {int(host_id) for host_id in draw} for draw in draws]
    assert all(20 <= left_out.count({number}) <= 50 for number in range(6))


def test_a_sheet_names_host_person_department_and_evidence_and_no_cell_is_a_formula():
    sample, text = made()
    assert text.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert {row["person"] for row in rows} == {"ann@corp.example (u1)"}
    assert {row["department"] for row in rows} == {"Sales"}
    assert list(rows[0])[-2:] == ["right", "instead"]
    assert all(row["evidence"].startswith("ann: ") for row in rows)
    assert "ann" not in sample["evidence"].str.join(), "what is stored names nobody"
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    assert read(text.encode(), sample)[0].equals(sample)


def test_answers_are_read_in_usual_spellings_and_what_is_left_empty_stays():
    sample, text = made()
    given = ["Yes", "n", "", " TRUE ", "nein"]
    first, _ = read(filled_in(text, lambda n, row: row.update(right=given[n])), sample)
    assert first["right"].to_list() == [True, False, None, True, False]
    third = filled_in(text, lambda n, row: row.update(right="yes" if n == 2 else ""), ";")
    for content in (third, third.replace(b";", b"\t").decode().encode("utf-16")):  # Excel's "Unicode Text"
        again, notes = read(content, first)
        assert notes == []
        assert again["right"].to_list() == [True, False, True, True, False]


def test_an_owner_undone_as_wrong_is_answered_no_and_nothing_is_learnt_from_it_unless_an_audit_said_so():
    sample, text = made()
    sample = sample.with_columns(right=pl.Series([None, False, True, None, None]))
    asked = sample["host_id"].to_list()
    host_id = pl.Series([*asked[:3], asked[4], "new"])
    undone = pl.concat([plan(one, run_id="r", new=values("u1")) for one in host_id[:3]])
    undone = pl.concat([undone, *(plan(one, run_id="r", new=values("u2")) for one in host_id[3:])])
    found = answered_wrong(sample, undone, decided(), at=NOW, by="kim")
    found = answered_wrong(validated(AuditSample, found), undone, decided(), at=NOW, by="kim")
    assert found["seed"].to_list() == [None, None, 7, 7, 7, 7, 7], "the last draw comes last"
    no = found.filter(~pl.col("right"), answered_by="kim").select("host_id", "user_id")
    assert set(no.rows()) == set(zip(host_id, ["u1", "u1", "u1", "u2", "u2"], strict=True))
    learnt = drawn_alike(found, WINDOW, Rules(), "as now")
    assert learnt["host_id"].to_list() == asked[1:2] + asked[3:]
    assert last_drawn(found).equals(learnt)
    assert last_drawn(found.filter(pl.col("seed").is_null())).is_empty()
    on_sheet = found.drop_nulls("seed").unique("host_id", keep="last", maintain_order=True)
    by_sheet, _ = read(filled_in(text, lambda n, row: row.update(right="no" * (n == 0))), on_sheet)
    learnt = drawn_alike(by_sheet, WINDOW, Rules(), "as now")
    assert asked[0] in learnt["host_id"].to_list(), "the sheet answers it as it was drawn"


def test_answers_are_read_from_a_workbook_with_each_name_as_it_is():
    sample, _ = made()
    table = sheet(sample, PEOPLE).with_columns(right=pl.lit("yes"))
    book = sheet_content(table, is_workbook=True)
    assert b'sqref="H2:H6"' in ZipFile(io.BytesIO(book)).read("xl/worksheets/sheet1.xml")
    assert read(book, sample)[0]["right"].to_list() == [True] * 5
    for first in ([], ["Pivot"]):  # an empty sheet before ours, or one of a colleague
        box = io.BytesIO()
        with Workbook(box) as workbook:
            workbook.add_worksheet().write_row(0, 0, first)
            table.write_excel(workbook, "Audit")
        assert read(box.getvalue(), sample)[0]["right"].to_list() == [True] * 5


def with_part(book, name, change):
    """A workbook, one of whose parts is changed."""
    box = io.BytesIO()
    with ZipFile(io.BytesIO(book)) as old, ZipFile(box, "w", ZIP_DEFLATED) as new:
        for part in old.namelist():
            new.writestr(part, change(old.read(part)) if part == name else old.read(part))
    return box.getvalue()


EMPTY_LAST_ROW = b'<row r="1048576" ht="12.8"/></sheetData>'
FAR = {
    "by place": b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>',
    "by row": b'<x:row r="1048576">' + b"<x:c><x:v>1</x:v></x:c>" * 16_384 + b"</x:row></sheetData>",
    "by quotes": b"<row r = '1048570' ><c r = 'XFD1048570'><v>1</v></c></row></sheetData>",
    "by size": b"</sheetData>",
}


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_a_workbook_that_takes_all_memory_is_refused(far):
    sample, _ = made()
    book, part = sheet_content(sheet(sample, PEOPLE), is_workbook=True), "xl/worksheets/sheet1.xml"
    blanks = b" " * MAX_BYTES if far == FAR["by size"] else b""
    large = with_part(book, part, lambda text: text.replace(b"</sheetData>", far + blanks))
    assert len(large) < 2**20
    with pytest.raises(SheetError, match="too large, or has a cell far from the others"):
        read(large, sample)
    usual = with_part(book, part, lambda text: text.replace(b"</sheetData>", EMPTY_LAST_ROW))
    [nothing] = read(usual, sample)[1]
    assert "has no answers (column right); only earlier sheets count" in nothing


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK and nothing more", "workbook cannot be read"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 and more", "has a password"),
        (b"PK\x05\x06" + bytes(18), "is not an .xlsx"),  # an empty archive
    ],
)
def test_a_workbook_with_a_password_or_of_another_kind_is_told(content, says):
    with pytest.raises(SheetError, match=says):
        read(content, made()[0])


def test_an_id_of_which_a_spreadsheet_made_a_number_is_known_by_the_host_s_name():
    sample, text = made()
    changed = filled_in(text, lambda _, row: row.update(right="yes", host_id=row["host_id"].lstrip("0")))
    assert read(changed, sample)[0]["right"].to_list() == [True] * 5


CHANGES = {
    "another draw": {"seed": "8"},
    "a host that was not drawn": {"host_id": "h9", "hostname": "pc-9"},
    "another person": {"person": "bob@corp.example (u2)"},
    "no answer to read": {"right": "maybe"},
    "a host twice": {"host_id": "", "hostname": "pc-5"},
    "yes, and somebody else instead": {"right": "yes", "instead": "bob@corp.example"},
    "no, and the same person instead": {"right": "no", "instead": "ann@corp.example"},
}


@pytest.mark.parametrize("is_workbook", [True, False])
def test_ids_that_do_not_print_or_end_in_blanks_come_back(is_workbook):
    people = users(user("u\x01\n1 ", email="ann@corp.example"), user("=1'", email="bob\x02@corp.example"))
    logons = counts(("pc-1", "ann", 5), ("pc-2", "ann", 5), ("pc-2", "bob", 1))
    decisions = decide(logons, people, hosts(host(" h\t1", "pc-1"), host("h\x7f2\xa0", "pc-2")))
    sample = drawn(decisions, 2)
    table = sheet(sample, people).with_columns(instead=pl.lit("=1'"), right=pl.lit("no"))
    answers, notes = read(sheet_content(table, is_workbook=is_workbook), sample, people)
    assert (answers["right"].to_list(), notes) == ([False, False], [])


@pytest.mark.parametrize("change", CHANGES)
def test_a_sheet_that_does_not_fit_is_refused_with_its_line(change):
    sample, text = made()
    with pytest.raises(SheetError, match="line "):
        read(filled_in(text, lambda _, row: row.update(CHANGES[change])), sample)
    with pytest.raises(SheetError, match="columns"):
        read(b"a,b\n1,2\n", sample)


def test_who_is_named_instead_is_listed_for_the_inventory_and_answers_no():
    sample, text = made()
    instead = ["Bob@corp.example", "bob@corp.example (u2)", "u1", "somebody in Sales", ""]
    rows, notes = read(filled_in(text, lambda n, row: row.update(instead=instead[n])), sample)
    assert rows["right"].to_list() == [False, False, True, None, None]
    assert rows["instead_id"].to_list() == ["u2", "u2", None, None, None]
    assert len(notes) == 1
    assert "line 5: no user asset, or several, are called 'somebody in Sales'" in notes[0]
    assert [line.split()[-2:] for line in words_of(rows, 6)[-2:]] == [["bob@corp.example", "(u2)"]] * 2


def test_five_hosts_of_a_long_sheet_are_asked_twice_and_two_answers_that_contradict_count_as_none():
    sample, text = made(*(f"lt-{n:02}" for n in range(30)), number=30)
    lines = [*csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))]
    rows = [row["hostname"] for row in lines]
    twice = rows[30:]
    assert [n for n, line in enumerate(lines) if line["question"].startswith("Asked again, on purpose")] == [
        *range(30, 35)
    ]
    assert ["The last 5 rows" in line for line in how_to_answer(sample)] == [False, False, True]
    assert (len(twice), sorted(rows[:30])) == (5, sorted(sample["hostname"]))
    assert all(rows[30:].index(name) + 30 - rows.index(name) > 10 for name in twice), (
        "nobody sees it twice at once"
    )
    assert twice != [name for name in rows[:30] if name in twice]

    def answer(number, row):
        row["right"] = "no" if number == 34 else "yes"

    answers, notes = read(filled_in(text, answer), sample)
    [note] = notes
    assert (
        f"lines {rows.index(twice[4]) + 2} and 36: {twice[4]} is answered yes and no, which counts as neither"
        in note
    )
    assert answers.filter(pl.col("right").is_null())["hostname"].to_list() == [twice[4]]
    assert answers["contradicted"].value_counts().sort("contradicted").rows() == [
        (None, 25), (False, 4), (True, 1),
    ]  # fmt: skip
    said = words_of(answers, 30)
    assert said == [
        "Good enough: at least 90% of these owners are right (--target-precision asks for 90%).",
        "All sheets together: 30 of 30 owners are answered, 29 of them right, 1 both yes and no.",
        "5 hosts asked twice: 1 got a yes and a no.",
    ]
    surer = words_of(answers, 30, precision=0.95)[0]
    assert surer.startswith("Perhaps good enough: 90% to 100% of these owners are right; more answers tell")
    assert answers_missing(answers) == MIN_ANSWERED - 30

    def answer_once(number, row):
        row["right"] = "yes" if row["hostname"] == twice[4] and number < 30 else ""

    settled, _ = read(filled_in(text, answer_once), answers)
    assert words_of(settled, 30)[1] == "All sheets together: 30 of 30 owners are answered, 30 of them right."
    assert answers_missing(settled) == MIN_ANSWERED - 30, "it is answered once, and not twice"
    agreed, _ = read(
        filled_in(text, lambda _, row: row.update(right="no" if row["hostname"] in rows[:2] else "yes")),
        sample,
    )
    said = words_of(agreed, 30)
    usual = "As audits usually go, about 2% of all answers are mistakes."
    assert said[0].startswith("Good enough: at least 93% of these owners are right (")
    assert said[2] == f"5 hosts asked twice: the answers agree. {usual}"
    assert said[3] == "Of the 30 planned owners about 2 are wrong (2 to 2)."
    assert words_of(agreed, 30, precision=0.95)[0].startswith("Not good enough: at most 94% of")
    undone = pl.DataFrame({"right": [False, None]})
    said = words_of(agreed, 150, written=150, undone=undone)
    assert said[3].startswith("Of the 150 written owners about 9 are wrong (2 to ")
    assert said[3].endswith("); 10 if no answer is a mistake.")
    assert said[4].startswith(
        "2 undone since, 1 of these answered no. Of the other 148 about 8 are wrong (1 to "
    )
    for number, says in ((148, "; too few are left to estimate how many are wrong."), (150, ".")):
        undone = pl.DataFrame({"right": [False] * 2 + [None] * (number - 2)})
        said = words_of(agreed, 150, written=150, undone=undone)
        assert said[4] == f"{number} undone since, 2 of these answered no{says}"
    few = agreed.with_columns(
        right=pl.when(pl.int_range(pl.len()) < 5).then("right"), contradicted=pl.lit(None, pl.Boolean)
    )
    [little, _, missing] = words_of(few, 30)
    assert missing.startswith(f"25 without an answer: {rows[5]}, ")
    assert missing.endswith(" and 20 more.")
    assert little.startswith("Too few answers to tell whether the plan is good enough: an estimate takes 30 ")
    once, _ = read(filled_in(text, lambda n, row: row.update(right="yes" * (n >= 30))), sample)
    assert (once["right"].sum(), once["contradicted"].count()) == (5, 0)
    with pytest.raises(SheetError, match="delete one of the two"):
        read(filled_in(text, lambda _, row: row.update(hostname=twice[0], host_id="")), sample)


def test_an_answer_that_contradicts_an_earlier_one_is_told():
    sample, text = made()
    first, _ = read(filled_in(text, lambda _, row: row.update(right="yes")), sample)
    second, notes = read(
        filled_in(text, lambda n, row: row.update(right="yes" if n else "no")), first, PEOPLE
    )
    assert second["right"].to_list() == [False, True, True, True, True]
    assert [note.partition(" was ")[2] for note in notes] == ["answered yes earlier, and is now no"]


def test_a_row_is_answered_by_the_sheet_of_its_own_draw():
    """Answers of an earlier draw stay in the table, and its sheet may be handed in later."""
    (first, _), (second, text) = made(seed=7), made(seed=8)
    both = pl.concat([first.with_columns(host_id=pl.format("old-{}", "host_id")), second])

    def of_another_draw(_, row):
        row["seed"] = "7"

    answers, _ = read(filled_in(text, lambda _, row: row.update(right="yes")), both)
    assert answers["right"].to_list() == [None] * first.height + [True] * second.height
    with pytest.raises(SheetError, match="of another draw, with seed 7 and not 8"):
        read(filled_in(text, of_another_draw), both)
