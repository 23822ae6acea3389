"""The tests of all packages; `examples` says how much of what is drawn at random is tried."""

from hypothesis import settings


def examples(number: int) -> settings:
    """So many examples, ten times as many with `--hypothesis-profile thorough`, a quarter with `quick`."""
    return settings(max_examples=max(3, number * settings().max_examples // 100), deadline=None)
