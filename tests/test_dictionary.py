from pathlib import Path

from sandbox.dictionary import data_dictionary

PAGE = Path(__file__).parents[1] / "docs" / "data_dictionary.md"


def test_the_page_is_what_the_schemas_say():
    assert PAGE.read_text(encoding="utf-8") == data_dictionary(), "run `make docs`"
