"""How many owners to write are wrong, predicted from bands of hosts that were compared."""

from ownership.tuning.claims import Band, wrong_among

FEW_WRONG: Band = (100, 20, 100, 0, 0)


def test_a_band_counts_by_what_was_compared_in_it_and_by_all_where_nothing_was():
    assert wrong_among([FEW_WRONG, (100, 0, 100, 10, 10)])[0] < 1
    assert 1.9 < wrong_among([FEW_WRONG, (0, 0, 0, 10, 10)])[0] < 2.2


def test_hosts_that_depend_on_each_other_tell_less():
    def width(effective_number):
        _, low, high = wrong_among([(100, 20, effective_number, 1000, 1000)])
        return high - low

    assert width(10) > 2 * width(100)
