import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.mesh.candidates import SCHEDULES
from meshfit.mesh.spec import LayoutSpec, even_stages
from meshfit.predict.shape import schedule as schedule_module
from meshfit.predict.shape.schedule import Pipeline, bubble_s, in_flight
from meshfit.predict.shape.schedules import flight as flight_module
from meshfit.predict.shape.schedules.flight import peak_flight
from tests.predict.builders import llama, pipeline


def forward_backward_order(schedule, rank, pp, micro_batches):
    """F and B of one rank as GPipe and 1F1B define them."""
    if schedule == "gpipe":
        return ["F"] * micro_batches + ["B"] * micro_batches
    warm_up = min(micro_batches, pp - rank - 1)
    steady = ["F", "B"] * (micro_batches - warm_up)
    return ["F"] * warm_up + steady + ["B"] * warm_up


def simulated_s(schedule, forward_s, backward_s, micro_batches):
    """Makespan of a pipeline by playing it: each rank in its order, each micro-batch after the
    rank before it (forward) or behind it (backward)."""
    pp = len(forward_s)
    done = {}
    clocks = [0.0] * pp
    queues = [list(forward_backward_order(schedule, rank, pp, micro_batches)) for rank in range(pp)]
    counts = [{"F": 0, "B": 0} for _ in range(pp)]
    while any(queues):
        for rank in range(pp):
            if not queues[rank]:
                continue
            kind = queues[rank][0]
            number = counts[rank][kind]
            neighbour = rank - 1 if kind == "F" else rank + 1
            needs = [(kind, neighbour, number)] if 0 <= neighbour < pp else []
            if any(need not in done for need in needs):
                continue
            start = max([clocks[rank], *(done[need] for need in needs)])
            clocks[rank] = start + (forward_s if kind == "F" else backward_s)[rank]
            done[kind, rank, number] = clocks[rank]
            counts[rank][kind] += 1
            queues[rank].pop(0)
    return max(clocks)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@given(
    pp=st.integers(1, 6),
    more=st.integers(0, 8),
    forward_s=st.floats(0.1, 3),
    backward_s=st.floats(0.1, 3),
)
def test_bubble_of_a_balanced_pipeline_is_that_of_a_played_one(
    schedule, pp, more, forward_s, backward_s
):
    micro_batches = pp + more
    layout = LayoutSpec(pp=pp, schedule=schedule)
    one = np.array([forward_s + backward_s])
    bubble = bubble_s(
        pipeline(layout, llama(num_layers=6)), one, pp * one, np.array([micro_batches])
    )[0]
    step = micro_batches * one[0] + bubble
    played = simulated_s(schedule, [forward_s] * pp, [backward_s] * pp, micro_batches)
    assert step == pytest.approx(played)
    assert bubble / step == pytest.approx((pp - 1) / (micro_batches + pp - 1))


def test_interleaving_divides_the_bubble_by_the_virtual_stages():
    model = llama(num_layers=8)
    slowest, everyone, eight = np.array([1.0]), np.array([4.0]), np.array([8])
    plain = bubble_s(pipeline(LayoutSpec(pp=4), model), slowest, everyone, eight)
    looped = LayoutSpec(pp=4, vpp=2, schedule="interleaved_1f1b")
    assert bubble_s(pipeline(looped, model), slowest, everyone, eight) == plain / 2
    micro_batches = 8
    assert plain[0] / 2 / (micro_batches + plain[0] / 2) == pytest.approx(3 / (2 * 8 + 3))


@given(micro_batches=st.integers(1, 40), pp=st.integers(1, 12))
def test_one_f_one_b_holds_p_minus_i_micro_batches(micro_batches, pp):
    """Case a26: under 1F1B stage i of p holds p - i micro-batches; equal parameters never mean
    equal memory."""
    pipe = pipeline(LayoutSpec(pp=pp), llama(num_layers=12))
    for rank in range(pp):
        held = in_flight(pipe, rank, np.array([micro_batches]))
        assert held.per_chunk[0][0] == min(micro_batches, pp - rank)
        order = forward_backward_order("1f1b", rank, pp, micro_batches)
        flying = np.cumsum([1 if kind == "F" else -1 for kind in order])
        assert held.per_chunk[0][0] == flying.max()


def interleaved_peak(rank, pp, vpp, micro_batches):
    """Forwards less backwards at most, in the order of torch's interleaved 1F1B."""
    per_round = micro_batches // max(1, micro_batches // pp)
    total = micro_batches * vpp
    warm_up = min((vpp - 1) * per_round + 2 * (pp - 1 - rank), total)
    order = ["F"] * warm_up + ["F", "B"] * (total - warm_up) + ["B"] * warm_up
    return max(np.cumsum([1 if kind == "F" else -1 for kind in order]))


@given(rounds=st.integers(1, 5), pp=st.integers(2, 6), vpp=st.integers(2, 3))
def test_interleaved_holds_the_forwards_of_its_warm_up_and_one_more(rounds, pp, vpp):
    layout = LayoutSpec(pp=pp, vpp=vpp, schedule="interleaved_1f1b")
    pipe = pipeline(layout, llama(num_layers=pp * vpp))
    for rank in range(pp):
        held = in_flight(pipe, rank, np.array([rounds * pp]))
        in_all = sum(int(chunk[0]) for chunk in held.per_chunk)
        assert in_all == interleaved_peak(rank, pp, vpp, rounds * pp)
        assert all(0 <= chunk[0] <= rounds * pp for chunk in held.per_chunk)


def test_gpipe_holds_all_and_accumulates_nothing_before_its_first_backward():
    held = in_flight(pipeline(LayoutSpec(pp=4, schedule="gpipe"), llama()), 3, np.array([1, 4, 16]))
    assert held.per_chunk[0].tolist() == [1, 4, 16]
    assert not held.accumulating.any()


def test_virtual_stages_lie_in_a_loop():
    pipe = Pipeline(
        pp=2, vpp=2, schedule="interleaved_1f1b", stage_layers=(1, 2, 3, 4), model=llama(num_layers=10)
    )  # fmt: skip
    assert [[chunk.num_layers for chunk in shape.chunks] for shape in pipe.ranks] == [
        [1, 3],
        [2, 4],
    ]
    assert pipe.ranks[0].chunks[0].has_embedding
    assert pipe.ranks[1].chunks[1].has_head


@given(pp=st.integers(1, 10), layers=st.integers(10, 30))
def test_distinct_ranks_stand_for_all_of_them(pp, layers):
    pipe = Pipeline(
        pp=pp, vpp=1, schedule="1f1b", stage_layers=even_stages(layers, pp), model=llama(num_layers=layers)
    )  # fmt: skip
    assert sum(count for _, count in pipe.distinct_ranks) == pp
    assert len({shape.chunks for shape, _ in pipe.distinct_ranks}) == len(pipe.distinct_ranks)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved_1f1b", "looped_bfs"])
@given(pp=st.integers(1, 5), rounds=st.integers(1, 6), vpp=st.integers(2, 3))
def test_closed_forms_of_what_is_in_flight_are_those_of_the_program(schedule, pp, rounds, vpp):
    looped = schedule in ("interleaved_1f1b", "looped_bfs")
    vpp = vpp if looped else 1
    pipe = pipeline(LayoutSpec(pp=pp, vpp=vpp, schedule=schedule), llama(num_layers=pp * vpp))
    for rank in range(pp):
        held = in_flight(pipe, rank, np.array([rounds * pp]))
        peak = peak_flight(schedule, rank, pp, vpp, rounds * pp)
        assert tuple(int(chunk[0]) for chunk in held.per_chunk) == peak.per_stage
        assert bool(held.accumulating[0]) == peak.accumulating


def test_a_v_holds_as_much_on_every_rank():
    """ZB-V holds 2 * pp half-size stages on each rank, as much as 1F1B on its first (2401.10241,
    section 6); it puts off no weights at that moment."""
    pipe = pipeline(LayoutSpec(pp=4, vpp=2, schedule="zbv_zero_bubble"), llama(num_layers=8))
    for rank in range(4):
        held = in_flight(pipe, rank, np.array([8, 32]))
        assert sum(held.per_chunk).tolist() == [8, 8]
        assert sum(held.put_off).tolist() == [0, 0]
    assert pipe.ranks[0].chunks[0].has_embedding
    assert pipe.ranks[0].chunks[1].has_head


def test_interleaved_zero_bubble_puts_off_one_micro_batch_more_on_every_rank():
    layout = LayoutSpec(pp=4, vpp=2, schedule="interleaved_zero_bubble")
    pipe = pipeline(layout, llama(num_layers=8))
    put_off = [sum(in_flight(pipe, rank, np.array([16])).put_off)[0] for rank in range(4)]
    assert put_off == [0, 1, 2, 3]


@pytest.mark.parametrize("schedule", ["interleaved_zero_bubble", "zbv_zero_bubble", "dualpipe_v"])
def test_a_split_backward_leaves_less_of_the_bubble(schedule):
    model, ones = llama(num_layers=8), np.ones(2)
    counts = np.array([8, 32])
    split = pipeline(LayoutSpec(pp=4, vpp=2, schedule=schedule), model)
    plain = pipeline(LayoutSpec(pp=4, vpp=2, schedule="interleaved_1f1b"), model)
    assert (bubble_s(split, ones, 4 * ones, counts) < bubble_s(plain, ones, 4 * ones, counts)).all()


def test_stages_that_meet_on_a_rank_pass_nothing_between_ranks():
    """In a V the two middle stages share a rank, and the first and the last do."""
    model = llama(num_layers=8)
    v = pipeline(LayoutSpec(pp=4, vpp=2, schedule="zbv_zero_bubble"), model)
    loop = pipeline(LayoutSpec(pp=4, vpp=2, schedule="interleaved_1f1b"), model)
    assert [v.receives(rank) for rank in range(4)] == [2, 4, 4, 2]
    assert [loop.receives(rank) for rank in range(4)] == [3, 4, 4, 3]
    assert pipeline(LayoutSpec(), model).receives(0) == 0


@pytest.mark.parametrize(
    "schedule", ["interleaved_1f1b", "interleaved_zero_bubble", "zbv_zero_bubble", "dualpipe_v"]
)
@given(pp=st.integers(2, 8), micro_batches=st.integers(1, 40))
def test_the_ranks_that_stand_for_others_hold_as_much_as_any(schedule, pp, micro_batches):
    micro_batches *= pp if schedule.startswith("interleaved") else 1
    micro_batches = max(micro_batches, 2 * pp if schedule == "dualpipe_v" else 1)
    layout = LayoutSpec(pp=pp, vpp=2, schedule=schedule)
    pipe = pipeline(layout, llama(num_layers=4 * pp))

    def kept(rank):
        return int(sum(in_flight(pipe, rank, np.array([micro_batches])).kept)[0])

    most = {}
    for shape, _ in pipe.distinct_ranks:
        most[shape.chunks] = max(kept(shape.rank), most.get(shape.chunks, 0))
    assert all(kept(shape.rank) <= most[shape.chunks] for shape in pipe.ranks)
    assert sum(count for _, count in pipe.distinct_ranks) == pp


@pytest.mark.parametrize(
    ("schedule", "pp", "vpp"),
    [
        ("interleaved_zero_bubble", 4, 2),
        ("interleaved_zero_bubble", 3, 4),
        ("zbv_zero_bubble", 4, 2),
        ("dualpipe_v", 4, 2),
    ],
)
def test_two_rounds_show_bubble_and_peak_of_more(monkeypatch, schedule, pp, vpp):
    """What lets long programs go unwritten."""
    counts = [2 * pp, 3 * pp, 5 * pp, 8 * pp]

    def found():
        schedule_module._unfilled_share.cache_clear()
        return [
            (
                schedule_module._unfilled_share(schedule, pp, vpp, count),
                [peak_flight(schedule, rank, pp, vpp, count) for rank in range(pp)],
            )
            for count in counts
        ]

    cut = found()
    monkeypatch.setattr(schedule_module, "SAME_BUBBLE_MICRO_BATCHES", 8)
    monkeypatch.setattr(flight_module, "ENOUGH_ROUNDS", 8)
    whole = found()
    schedule_module._unfilled_share.cache_clear()
    for (share, peaks), (expected_share, expected_peaks) in zip(cut, whole, strict=True):
        assert share == pytest.approx(expected_share, rel=1e-9)
        assert peaks == expected_peaks


def test_layouts_of_several_schedules_are_told_apart():
    schedules = ("1f1b", "gpipe")
    codes = np.array([SCHEDULES.index(name) for name in (*schedules, *schedules)])
    micro_batches = np.array([8, 8, 2, 2])
    pipe = pipeline(LayoutSpec(pp=4, schedule="1f1b"), llama())
    held = in_flight(pipe, 1, micro_batches, codes)
    assert held.per_chunk[0].tolist() == [3, 8, 2, 2]
    assert held.accumulating.tolist() == [True, False, False, False]
