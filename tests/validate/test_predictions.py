import pytest

from meshfit.breakdown import Interval, MemoryBreakdown, Prediction, TimeBreakdown
from meshfit.validate.figures import figures_of
from meshfit.validate.frameworks import read_job
from meshfit.validate.predictions import RowPrediction, predict_row, predict_rows
from tests.validate.builders import row


def predicted(*, reserved, allocated, context=0, capacity="1000", **columns):
    """A prediction of given bytes for a device of ``capacity``."""
    one = row(capacity_bytes=capacity, **columns)
    memory = MemoryBreakdown(parameters=allocated, reserved=reserved, context=context)
    step = Interval(low=1.0, middle=2.0, high=3.0)
    total = Interval(low=0.9 * memory.total, middle=memory.total, high=1.2 * memory.total)
    whole = Prediction(
        memory=memory,
        time=TimeBreakdown(compute=2.0),
        memory_total=total,
        step_time=step,
        tokens_per_s=1.0,
        binding="compute",
        profile="test",
    )
    return RowPrediction(row=one, job=read_job(one), prediction=whole, memory=memory)


@pytest.mark.parametrize(
    ("allocated", "reserved", "context", "verdict"),
    [
        (800, 850, 50, "fits"),
        (800, 900, 50, "tight"),
        (800, 1100, 50, "tight"),
        (960, 1100, 50, "does_not_fit"),
    ],
)
def test_a_verdict_is_from_allocated_to_reserved_with_context(
    allocated, reserved, context, verdict
):
    assert predicted(allocated=allocated, reserved=reserved, context=context).verdict == verdict


def test_device_memory_is_reserved_with_context():
    found = predicted(allocated=600, reserved=700, context=50)
    kinds = ("allocated", "reserved", "device", None)
    assert [found.memory_of_kind(kind) for kind in kinds] == [600, 700, 750, None]


def test_the_interval_is_that_of_the_rows_own_kind():
    found = predicted(allocated=600, reserved=700, context=50)
    for kind, bytes_of_kind in (("allocated", 600), ("reserved", 700), ("device", 750)):
        low, high = found.memory_interval(kind)
        assert (low * high) ** 0.5 == pytest.approx(bytes_of_kind)
    assert found.memory_interval(None) is None


def test_what_is_allocated_has_the_same_interval_whatever_is_held_beyond_it():
    alone = predicted(allocated=600, reserved=600)
    beside = predicted(allocated=600, reserved=900, context=50)
    assert alone.memory_interval("allocated") == beside.memory_interval("allocated")


def test_a_row_that_leaves_its_recomputation_open_has_a_wider_interval():
    stated, open_ = (predicted(allocated=600, reserved=700, recompute=r) for r in ("none", ""))
    assert open_.memory_interval("reserved")[1] > stated.memory_interval("reserved")[1]


def test_a_row_that_cannot_be_read_has_its_reason():
    found = predict_row(row(framework="Gemini"))
    assert (found.prediction, found.reason) == (None, "not modelled: Gemini")
    assert figures_of(found).as_json()["reason"] == "not modelled: Gemini"


def test_predictions_come_in_the_order_of_the_rows():
    rows = [row(id="a"), row(id="b", framework="Gemini"), row(id="c", gbs="128"), row(id="d")]
    assert [found.row.id for found in predict_rows(rows)] == ["a", "b", "c", "d"]


def test_a_row_is_predicted_alone_as_among_others():
    rows = [row(id="a"), row(id="b", mbs="2"), row(id="c", tp="2", dp="4", zero_stage="1")]
    together = predict_rows(rows)
    for one, found in zip(rows, together, strict=True):
        alone = predict_row(one)
        assert alone.prediction == found.prediction


def test_a_test_of_megatron_prints_its_last_ranks_memory():
    cells = {"framework": "Megatron-Core", "model": "gpt/test", "pp": "4", "dp": "2"}
    found = predict_row(row(engine_args="", **cells))
    assert found.memory.allocated < found.prediction.memory.allocated
