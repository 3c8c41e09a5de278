"""What the host does between the operations of a step, collected while the step is recorded."""

from meshfit.measure.timeline.spans import HostGap
from meshfit.measure.timeline.threads import ThreadCounts, ThreadMoment


class HostGaps:
    """Gaps between operations, each with how long its thread ran and waited for a core in it.

    A gap that begins on one thread and ends on another is left out: no count of one thread holds it.
    """

    def __init__(self) -> None:
        self._counts = ThreadCounts()
        self._begun: tuple[float, ThreadMoment] | None = None
        self._gaps: list[HostGap] = []

    def begin(self, now_s: float) -> None:
        """An operation has returned: the host goes on."""
        self._begun = (now_s, self._counts.now())

    def end(self, now_s: float) -> None:
        """The next operation, or the end of the step."""
        if self._begun is None:
            return
        (begin_s, before), after = self._begun, self._counts.now()
        self._begun = None
        if before.thread == after.thread and now_s > begin_s:
            self._gaps.append(
                HostGap(
                    begin_s=begin_s,
                    end_s=now_s,
                    running_s=after.running_s - before.running_s,
                    core_wait_s=_apart(before.core_wait_s, after.core_wait_s),
                )
            )

    def close(self) -> tuple[HostGap, ...]:
        """All gaps so far; nothing can be added any more."""
        self._counts.close()
        return tuple(self._gaps)


def _apart(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
