from hypothesis import given
from hypothesis import strategies as st

from meshfit.breakdown import MEMORY_CATEGORIES, MemoryBreakdown
from meshfit.measure.ledger import Ledger, Moment

CATEGORY = st.sampled_from(MEMORY_CATEGORIES)
EVENT = st.one_of(
    st.tuples(st.just("birth"), st.integers(0, 100), CATEGORY),
    st.tuples(st.just("resize"), st.integers(0, 50), st.integers(0, 100)),
    st.tuples(st.just("assign"), st.integers(0, 50), CATEGORY),
    st.tuples(st.just("backdate"), st.integers(0, 50)),
)


class ByHand:
    """The same history as size of each block at each moment, the slow and obvious way."""

    def __init__(self) -> None:
        self.sizes: list[list[int]] = []
        self.categories: list[str] = []
        self.born: list[int] = []

    def apply(self, now: int, kind: str, *arguments) -> None:
        if kind == "birth":
            size, category = arguments
            self.sizes.append([0] * now + [size])
            self.categories.append(category)
            self.born.append(now)
        elif self.sizes:
            block = arguments[0] % len(self.sizes)
            if kind == "resize":
                self.sizes[block][now] = arguments[1]
            elif kind == "assign":
                self.categories[block] = arguments[1]
            else:
                born = self.born[block]
                self.sizes[block][:born] = [self.sizes[block][born]] * born
                self.born[block] = 0

    def end_moment(self) -> None:
        for sizes in self.sizes:
            sizes.append(sizes[-1])

    def composition(self, moment: int) -> MemoryBreakdown:
        totals = dict.fromkeys(MEMORY_CATEGORIES, 0)
        for sizes, category in zip(self.sizes, self.categories, strict=True):
            totals[category] += sizes[moment]
        return MemoryBreakdown(**totals)


@given(st.lists(EVENT, max_size=40))
def test_peak_and_live_agree_with_a_table_of_every_block_at_every_moment(events):
    ledger, by_hand = Ledger(), ByHand()
    for now, (kind, *arguments) in enumerate(events):
        if kind == "birth" or by_hand.sizes:
            known = arguments if kind == "birth" else [arguments[0] % len(by_hand.sizes)]
            getattr(ledger, kind)(*known, *arguments[len(known) :])
        by_hand.apply(now, kind, *arguments)
        ledger.mark(f"operation {now}", "forward")
        by_hand.end_moment()
    ledger.mark("end", "between")

    moments = [by_hand.composition(moment) for moment in range(len(events) + 1)]
    peak, at = ledger.peak()
    highest = max(range(len(moments)), key=lambda m: moments[m].allocated)
    assert peak == moments[highest]
    assert at.operation == (f"operation {highest}" if highest < len(events) else "end")
    assert ledger.live() == moments[-1]


def test_a_block_that_turns_out_to_be_a_gradient_was_one_at_the_peak_too():
    ledger = Ledger()
    block = ledger.birth(8, "temporary")
    ledger.mark("mm", "backward")
    ledger.assign(block, "gradients")
    assert ledger.peak() == (
        MemoryBreakdown(gradients=8),
        Moment(operation="mm", phase="backward"),
    )


def test_a_block_refilled_in_place_counts_only_while_it_holds_bytes():
    ledger = Ledger()
    gathered = ledger.birth(0, "communication")
    ledger.resize(gathered, 64)
    ledger.mark("all_gather", "forward")
    ledger.resize(gathered, 0)
    assert ledger.peak()[0] == MemoryBreakdown(communication=64)
    assert ledger.live() == MemoryBreakdown()


def test_a_block_met_late_that_was_always_there_can_move_the_peak_to_an_earlier_moment():
    ledger = Ledger()
    activation = ledger.birth(10, "activations")
    ledger.mark("matmul", "forward")
    ledger.resize(activation, 0)
    bucket = ledger.birth(12, "communication")
    ledger.mark("allreduce_", "backward")
    assert ledger.peak()[1].operation == "allreduce_"

    ledger.backdate(bucket)
    assert ledger.peak() == (
        MemoryBreakdown(activations=10, communication=12),
        Moment(operation="matmul", phase="forward"),
    )
