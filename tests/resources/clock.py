"""A clock that tests turn."""


class Clock:
    """Gives the time; to sleep is to turn it, and `naps` keeps for how long."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    monotonic = __call__

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
