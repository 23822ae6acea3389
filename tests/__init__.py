"""The tests of all packages; `examples` says how much of what is drawn at random is tried."""

from hypothesis import settings


def examples(number: int) -> settings:
    """So many examples, and ten times as many with `--hypothesis-profile thorough`."""
    return settings(max_examples=number * settings().max_examples // 100, deadline=None)
