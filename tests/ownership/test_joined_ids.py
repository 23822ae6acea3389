import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ownership.names import escape_id, join_ids, joined_ids, split_ids

IDS = st.text(alphabet="a,%25C\\ ", min_size=1)


@given(st.lists(st.lists(IDS, min_size=1), min_size=1))
def test_what_is_joined_can_be_taken_apart(lists):
    ids = pl.DataFrame({"ids": lists}, {"ids": pl.List(pl.String)})
    joined = ids.select(join_ids(pl.col("ids")))
    assert joined["ids"].to_list() == [*map(joined_ids, lists)]
    assert joined.select(split_ids(pl.col("ids"))).equals(ids)
    one = pl.select(escape_id(pl.lit(lists[0][0]))).item()
    assert one == joined_ids(lists[0][:1])


def test_ids_without_commas_stand_there_as_they_are():
    assert joined_ids([r"CORP\ann", "50%", "u1"]) == r"CORP\ann,50%,u1"
