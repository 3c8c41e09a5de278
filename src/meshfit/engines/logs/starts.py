"""Which start of a run a step is of: a restarted run goes back to the step after its checkpoint."""


class Starts:
    """The steps of one stream of output, as they come.

    Ranks may share a stream (unmarked, or of several hosts under one mark): a step may come once a rank,
    and once more after the next one has begun.
    """

    def __init__(self) -> None:
        self.index = 0
        self._begins = False
        self._last: int | None = None
        self._before: int | None = None

    def begin(self) -> None:
        """Training begins or goes on: the next step is of another start than the last one."""
        self._begins = self._last is not None

    def place(self, step: int) -> int:
        """The start, from 0, that ``step`` is of."""
        if self._begins or self._goes_back(step):
            self.index += 1
            self._last = self._before = None
        self._begins = False
        if self._last is None or step > self._last:
            self._before, self._last = self._last, step
        return self.index

    def next_step(self) -> int:
        """A number for a step that is printed without: one more than the last one of this start."""
        return 1 if self._last is None or self._begins else self._last + 1

    def _goes_back(self, step: int) -> bool:
        return self._last is not None and step < self._last and step != self._before
