"""Ranks with a part of every expert's width compute together what a plain loop computes."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.run.experts.loop import (
    INNER,
    close,
    expected_of_all,
    first_ones,
    layer,
    routings,
    times,
    tokens,
    with_equal_tokens,
)
from tests.run.experts.world import run_ranks

SPREAD, CUT = 2, 2
"""Ranks that divide the experts, and among them those that cut each; the latter are neighbours."""


def own_part(experts: int, ep: int, etp: int):
    """Gate and up projection, and down projection, of a rank's experts: its part of their width."""
    import torch

    gate_up, down = (w.chunk(SPREAD)[ep] for w in layer(experts))
    gate, up = (w.chunk(CUT, dim=1)[etp] for w in gate_up.split(INNER, dim=1))
    return torch.cat((gate, up), dim=1), down.chunk(CUT, dim=2)[etp]


def of_rank(rank: int, routing, kind: str, make_dispatch):
    """Outputs and gradients of one rank, and how many copies of its tokens it told of."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh

    from meshfit.run.experts import gather
    from meshfit.run.experts.layer import Experts

    mesh = init_device_mesh("cpu", (SPREAD, CUT), mesh_dim_names=("ep", "etp"))
    gathering = getattr(gather, kind)(mesh["etp"].get_group(), "etp")
    experts, choices, chosen = routing
    gate_up, down = (nn.Parameter(w.clone()) for w in own_part(experts, *divmod(rank, CUT)))
    told = []
    module = Experts(
        SimpleNamespace(
            gate_up_proj=gate_up, down_proj=down, act_fn=nn.SiLU(), num_experts=experts
        ),
        make_dispatch(mesh["ep"].get_group(), gathering),
        gathering,
        told.append,
    )
    source = rank if kind == "TokensOfEach" else rank // CUT
    hidden, chosen_experts, weights = tokens(source, chosen[source], choices)
    output = module(hidden, chosen_experts, weights)
    output.square().sum().backward()
    (counts,) = told
    assert counts.tolist() == torch.bincount(chosen_experts.flatten(), minlength=experts).tolist()
    return output.detach(), [t.grad for t in (hidden, weights, gate_up, down)]


def assert_same(found, routing, kind: str, taken=None) -> None:
    each, gate_up, down = expected_of_all(routing, taken)
    for rank, (output, (hidden, weights, own_gate_up, own_down)) in enumerate(found):
        ep, etp = divmod(rank, CUT)
        expected = each[rank if kind == "TokensOfEach" else ep]
        for ours, theirs in zip((output, hidden, weights), expected, strict=True):
            assert close(ours, theirs)
        if gate_up is None:
            continue
        for ours, whole in (
            (own_gate_up[:, : INNER // CUT], gate_up[:, :INNER].chunk(CUT, dim=1)[etp]),
            (own_gate_up[:, INNER // CUT :], gate_up[:, INNER:].chunk(CUT, dim=1)[etp]),
            (own_down, down.chunk(CUT, dim=2)[etp]),
        ):
            assert close(ours, whole.chunk(SPREAD)[ep])


def dropless(group, _gathering):
    from meshfit.run.experts.dispatch import DroplessDispatch

    return DroplessDispatch(group, times())


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_ranks_with_tokens_of_their_own_compute_what_a_loop_computes(data: st.DataObject) -> None:
    routing = with_equal_tokens(data.draw(routings(ranks=SPREAD * CUT)))
    found = run_ranks(SPREAD * CUT, lambda rank: of_rank(rank, routing, "TokensOfEach", dropless))
    assert_same(found, routing, "TokensOfEach")


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_ranks_with_the_same_tokens_compute_them_once(data: st.DataObject) -> None:
    routing = data.draw(routings(ranks=SPREAD))
    found = run_ranks(SPREAD * CUT, lambda rank: of_rank(rank, routing, "TokensOfAll", dropless))
    assert_same(found, routing, "TokensOfAll")


@pytest.mark.parametrize("factor", [0.5, 1.0])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_each_rank_drops_of_its_own_tokens_and_counts_these(
    factor: float, data: st.DataObject
) -> None:
    from meshfit.run.experts.capacity import capacity
    from meshfit.run.experts.dispatch import LimitedDispatch

    routing = with_equal_tokens(data.draw(routings(ranks=SPREAD * CUT)))
    experts, choices, chosen = routing
    limit = capacity(len(chosen[0]), choices, experts, factor)
    counted = {}

    def one(rank: int):
        def on_limit(dropped, padded) -> None:
            counted[rank] = (int(dropped), int(padded))

        def limited(group, gathering):
            return LimitedDispatch(
                factor=factor,
                group=group,
                times=times(),
                on_limit=on_limit,
                sources=gathering.sources,
                own=gathering.own,
            )

        return of_rank(rank, routing, "TokensOfEach", limited)

    found = run_ranks(SPREAD * CUT, one)
    taken = [first_ones(own, limit) for own in chosen]
    assert_same(found, routing, "TokensOfEach", taken)
    for rank, rows in enumerate(taken):
        kept = sum(sum(row) for row in rows)
        assert counted[rank] == (len(rows) * choices - kept, experts * limit - kept)
