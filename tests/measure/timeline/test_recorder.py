"""The recorder in a world of four of which three do not exist: calls are real, transfers are not."""

import time
from collections.abc import Iterator

import pytest

from meshfit.measure.timeline.spans import StepTrace

TRANSFER_S = 0.01
"""So long the one functional collective is under way before its result is used."""
CLOCKS_APART_S = 1e-3
"""By so much the thread's clock may run ahead: it is read a little after the wall clock."""


@pytest.fixture(scope="module")
def trace() -> Iterator[StepTrace]:
    """A step of rank 1 on a mesh of 2 x 2: compute, recompute, update, and every kind of call."""
    import torch
    import torch.distributed as dist
    from torch.distributed._functional_collectives import all_gather_tensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.utils.checkpoint import checkpoint

    from meshfit.measure.timeline.axes import along
    from meshfit.measure.timeline.recorder import StepRecorder

    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))
    shards, tensors = mesh["dp_shard"].get_group(), mesh["tp"].get_group()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(4, 8)
    axes = {shards.group_name: "dp_shard", tensors.group_name: "tp"}
    with StepRecorder([model], optimizer, axes=axes) as recorder:
        checkpoint(model, x, use_reentrant=False).sum().backward()
        with along("world"):
            dist.all_reduce(x)
        dist.reduce_scatter_tensor(torch.empty(2, 8), x, group=shards)
        dist.all_gather_into_tensor(torch.empty(8, 8), x, group=shards)
        dist.all_to_all_single(torch.empty(4, 8), x, group=tensors)
        dist.send(x, 3, group=shards)
        gathered = all_gather_tensor(x, 0, tensors)
        time.sleep(TRANSFER_S)
        _ = gathered + 1
        with along("ep"):
            dist.all_to_all_single(torch.empty(4, 8), x, group=shards)
        optimizer.step()
    yield recorder.trace(1, [(1.0, 2.0)])
    dist.destroy_process_group()


def test_kind_and_axis_come_from_the_call_and_its_group(trace: StepTrace) -> None:
    assert [(call.collective, call.axis) for call in trace.calls] == [
        ("all_reduce", "world"),
        ("reduce_scatter", "dp_shard"),
        ("all_gather", "dp_shard"),
        ("all_to_all", "tp"),
        ("p2p", "dp_shard"),
        ("all_gather", "tp"),
        ("all_to_all", "ep"),
    ]
    assert trace.calls[0].ranks == (0, 1, 2, 3)
    assert trace.calls[1].ranks == (1, 3)


def test_a_message_has_its_ends_and_a_collective_has_none(trace: StepTrace) -> None:
    assert (trace.calls[4].source, trace.calls[4].target) == (1, 3)
    assert (trace.calls[0].source, trace.calls[0].target) == (None, None)


def test_a_functional_collective_lasts_until_its_result_is_waited_for(trace: StepTrace) -> None:
    functional = trace.calls[5]
    assert functional.end_s - functional.begin_s >= TRANSFER_S
    used = next(one for one in trace.computations if one.begin_s >= functional.begin_s)
    assert functional.end_s <= used.begin_s


def test_a_call_is_as_large_as_the_larger_of_what_goes_in_and_comes_out(trace: StepTrace) -> None:
    assert [call.size_bytes for call in trace.calls[:3]] == [4 * 8 * 4, 4 * 8 * 4, 8 * 8 * 4]


def test_computation_is_told_apart_by_what_it_is_for(trace: StepTrace) -> None:
    works = {computation.work for computation in trace.computations}
    assert works == {"compute", "recompute", "optimizer"}
    again = [c.name for c in trace.computations if c.work == "recompute"]
    assert any("addmm" in name for name in again)
    assert not any("c10d" in computation.name for computation in trace.computations)


def test_everything_lies_inside_the_step_and_has_a_length(trace: StepTrace) -> None:
    for span in (*trace.computations, *trace.calls):
        assert trace.begin_s <= span.begin_s <= span.end_s <= trace.end_s
    ((begin, end),) = trace.input_waits
    assert end - begin == pytest.approx(1.0)


def test_between_operations_the_thread_is_accounted_for(trace: StepTrace) -> None:
    spans = [(one.begin_s, one.end_s) for one in trace.computations]
    for gap in trace.gaps:
        assert trace.begin_s <= gap.begin_s < gap.end_s <= trace.end_s
        assert not any(begin < gap.end_s and gap.begin_s < end for begin, end in spans)
        assert 0 <= gap.running_s <= gap.end_s - gap.begin_s + CLOCKS_APART_S
        assert gap.core_wait_s is None or gap.core_wait_s >= 0
    assert sum(gap.running_s for gap in trace.gaps) > 0


def test_waiting_is_as_before_once_the_step_is_over(trace: StepTrace) -> None:
    from torch._C._distributed_c10d import Work

    assert "recorder" not in getattr(Work.wait, "__module__", "")
