"""A layer of experts by a plain loop over tokens and choices, and what ranks find, compared with it.

No torch at import: tests draw their examples before it is needed.
"""

from hypothesis import strategies as st

HIDDEN, INNER = 8, 16


@st.composite
def routings(draw, *, ranks: int):
    """Choices of every rank's tokens among a few experts: any number of tokens, some experts idle."""
    experts = ranks * draw(st.integers(1, 3))
    choices = draw(st.integers(1, min(2, experts)))
    token = st.lists(st.integers(0, experts - 1), min_size=choices, max_size=choices, unique=True)
    return experts, choices, [draw(st.lists(token, max_size=6)) for _ in range(ranks)]


def layer(experts: int):
    """Weights of all experts, the same on every rank."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def random(*shape: int):
        return torch.randn(*shape, generator=generator, dtype=torch.float32) / 4

    return random(experts, 2 * INNER, HIDDEN), random(experts, HIDDEN, INNER)


def tokens(rank: int, chosen: list[list[int]], choices: int):
    """Hidden states, choices and weights of a rank's tokens."""
    import torch

    generator = torch.Generator().manual_seed(rank + 1)
    chosen_experts = torch.tensor(chosen, dtype=torch.int64).reshape(-1, choices)
    hidden = torch.randn(len(chosen), HIDDEN, generator=generator, requires_grad=True)
    weights = torch.rand(len(chosen), choices, generator=generator, requires_grad=True)
    return hidden, chosen_experts, weights


def by_loop(hidden, chosen_experts, weights, of_layer, taken=None):
    """The definition: each token through each of its experts, one after the other."""
    import torch
    from torch.nn.functional import silu

    gate_up, down = of_layer
    rows = []
    for token, (chosen, its_weights) in enumerate(
        zip(chosen_experts.tolist(), weights, strict=True)
    ):
        row = torch.zeros(HIDDEN)
        for choice, (expert, weight) in enumerate(zip(chosen, its_weights, strict=True)):
            if taken is None or taken[token][choice]:
                gate, up = (gate_up[expert] @ hidden[token]).chunk(2)
                row = row + weight * (down[expert] @ (silu(gate) * up))
        rows.append(row)
    return torch.stack(rows) if rows else torch.zeros(0, HIDDEN)


def compute_with(gate_up, down):
    import torch
    from torch.nn.functional import silu

    from meshfit.run.experts.layer import grouped_linear

    def compute(rows, counts):
        ends = counts.cumsum(0, dtype=torch.int32)
        gate, up = grouped_linear(rows, gate_up, ends).chunk(2, dim=-1)
        return grouped_linear(silu(gate) * up, down, ends)

    return compute


def times():
    from meshfit.measure.timing import HostBoundaries
    from meshfit.run.experts.spans import ExchangeTimes, Spans

    return ExchangeTimes(dispatch=Spans(HostBoundaries()), combine=Spans(HostBoundaries()))


def of_rank(rank: int, ranks: int, routing, make_dispatch):
    """Output and gradients of one rank whose experts are its share of all."""
    from meshfit.run.experts.permute import sort_copies

    experts, choices, chosen = routing
    gate_up, down = (w.chunk(ranks)[rank].clone().requires_grad_() for w in layer(experts))
    hidden, chosen_experts, weights = tokens(rank, chosen[rank], choices)
    copies = sort_copies(chosen_experts, experts)
    outputs = make_dispatch()(copies.take(hidden), copies, compute_with(gate_up, down))
    merged = copies.merge(outputs, weights)
    merged.square().sum().backward()
    return merged.detach(), [t.grad for t in (hidden, weights, gate_up, down)]


def expected_of_all(routing, taken=None):
    """The same of all ranks by the loop: outputs, and gradients with those of experts over ranks."""
    experts, choices, chosen = routing
    gate_up, down = (w.requires_grad_() for w in layer(experts))
    each = []
    for rank, own in enumerate(chosen):
        hidden, chosen_experts, weights = tokens(rank, own, choices)
        output = by_loop(hidden, chosen_experts, weights, (gate_up, down), taken and taken[rank])
        if output.requires_grad:
            output.square().sum().backward()
        each.append((output.detach(), hidden.grad, weights.grad))
    return each, gate_up.grad, down.grad


def close(found, expected) -> bool:
    import torch

    if expected is None:  # no token went that way
        return found is None or not found.any()
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def assert_same(found, routing, ranks: int, taken=None) -> None:
    each, gate_up, down = expected_of_all(routing, taken)
    for rank, (output, (hidden, weights, own_gate_up, own_down)) in enumerate(found):
        expected_output, expected_hidden, expected_weights = each[rank]
        assert close(output, expected_output)
        assert close(hidden, expected_hidden)
        assert close(weights, expected_weights)
        assert close(own_gate_up, gate_up if gate_up is None else gate_up.chunk(ranks)[rank])
        assert close(own_down, down if down is None else down.chunk(ranks)[rank])


def first_ones(chosen: list[list[int]], limit: int) -> list[list[bool]]:
    """Which copies find a place where each expert takes the first ``limit`` in token order."""
    used: dict[int, int] = {}
    taken = []
    for choices in chosen:
        row = []
        for expert in choices:
            row.append(used.get(expert, 0) < limit)
            used[expert] = used.get(expert, 0) + 1
        taken.append(row)
    return taken


def with_equal_tokens(routing):
    """The routing with as many tokens on every rank: messages of a limited dispatch are alike."""
    experts, choices, chosen = routing
    fewest = min(len(own) for own in chosen)
    return experts, choices, [own[:fewest] for own in chosen]
