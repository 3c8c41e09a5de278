from meshfit.breakdown import MEMORY_CATEGORIES, Interval, MemoryBreakdown, TimeBreakdown


def test_memory_is_the_sum_of_its_categories_unless_the_allocator_holds_more():
    memory = MemoryBreakdown(parameters=3, activations=4, temporary=1)
    assert memory.allocated == memory.total == 8
    on_cuda = MemoryBreakdown(parameters=3, activations=4, temporary=1, reserved=10, context=5)
    assert (on_cuda.allocated, on_cuda.total) == (8, 15)


def test_memory_keys_are_the_published_ones():
    keys = MemoryBreakdown().as_json().keys()
    assert set(keys) == {"total", "allocated", "reserved", "context", *MEMORY_CATEGORIES}
    assert MEMORY_CATEGORIES == (
        "parameters", "gradients", "optimizer", "activations", "logits_and_loss", "temporary",
        "communication", "unattributed",
    )  # fmt: skip


def test_a_step_is_the_sum_of_its_terms_and_an_unknown_term_stays_unknown():
    time = TimeBreakdown(compute=1.0, bubble=0.5, exposed={"all_gather.dp_shard": 0.25})
    document = time.as_json()
    assert document["step"] == 1.75
    assert document["exposed.all_gather.dp_shard"] == 0.25
    assert document["checkpoint"] is None


def test_intervals_overlap_when_they_share_a_point():
    low, high = Interval(low=1, middle=2, high=3), Interval(low=3, middle=4, high=5)
    assert low.overlaps(high)
    assert high.overlaps(low)
    assert not low.overlaps(Interval(low=3.1, middle=4, high=5))
