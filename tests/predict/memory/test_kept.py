"""What autograd keeps under each recomputation policy, and what offloading takes away."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines.native.profile import NATIVE
from meshfit.engines.torchtitan.profile import TORCHTITAN_2024
from meshfit.mesh.spec import make_layout
from meshfit.predict.memory.activations import operation_tensors
from meshfit.predict.memory.pytorch import rank_memory
from meshfit.predict.shape.layer_basis import cast, layer_basis
from meshfit.workload.training import RuntimeSpec
from tests.predict.builders import BF16, group, llama, llama_8b, training

COMPILED = RuntimeSpec(compile=True)


def activations(*layouts, model=None, profile=NATIVE, **keys):
    spec = training(precision=BF16, **({"sequence_length": 4096} | keys))
    keys_of = [{"dp_shard": 2, "micro_batch_size": 8} | layout for layout in layouts]
    of = group(model or llama(num_layers=8), spec, *keys_of, profile=profile)
    return rank_memory(of.pipeline.ranks[0], of).categories["activations"]


def test_policies_keep_the_more_the_less_they_recompute():
    kept = activations(
        {"recompute": "full"},
        {"recompute": "alternate", "recompute_layers": 2},
        {"recompute": "block", "recompute_layers": 2},
        {"recompute": "none"},
    )
    assert sorted(kept) == list(kept)


@given(layers=st.integers(1, 8))
def test_the_first_n_layers_of_eight_recomputed_lie_between_none_and_all(layers):
    none, some, full = activations(
        {"recompute": "none"},
        {"recompute": "block", "recompute_layers": layers},
        {"recompute": "full"},
    )
    assert full <= some <= none


def test_every_first_layer_recomputed_is_all_of_them():
    alternate, full = activations(
        {"recompute": "alternate", "recompute_layers": 1}, {"recompute": "full"}
    )
    assert alternate == full


def test_an_alternating_layout_recomputes_every_second_layer_unless_it_says_otherwise():
    assert make_layout({"recompute": "alternate"}).recompute_layers == 2
    assert make_layout({"recompute": "alternate", "recompute_layers": 3}).recompute_layers == 3


def test_one_checkpoint_for_several_layers_keeps_fewer_inputs():
    each, together = activations(
        {"recompute": "full"},
        {"recompute": "full", "recompute_layers": 4},
        model=llama(num_layers=128),
    )
    assert together < each


def per_token(profile, runtime):
    model = llama_8b()
    basis = layer_basis(model, training(precision=BF16, runtime=runtime), profile, cast(BF16))
    return {t.name: t.bytes_per_token for t in operation_tensors(model.layers[0], basis)}


def test_operations_keep_every_second_matmul_and_attention():
    """Llama-3-8B in bytes a token: the input and the outputs of q, v, gate, down and attention."""
    assert per_token(TORCHTITAN_2024, RuntimeSpec(compile=False)) == {
        "layer.input": 2 * 4096,
        "attention.q_projected": 2 * 4096,
        "attention.v": 2 * 1024,
        "mlp.gate": 2 * 14_336,
        "mlp.projected": 2 * 4096,
        "attention.out": 2 * 4096,
        "attention.log_sum_exp": 4 * 32,
    }


def test_compiled_layers_drop_the_output_that_only_the_residual_stream_reads():
    eager = per_token(TORCHTITAN_2024, RuntimeSpec(compile=False))
    assert per_token(TORCHTITAN_2024, COMPILED) == {
        name: size for name, size in eager.items() if name != "mlp.projected"
    }


def test_compilation_keeps_less_of_every_layer():
    eager, compiled = (
        activations({"recompute": "none"}, runtime=runtime, profile=replace(NATIVE))[0]
        for runtime in (RuntimeSpec(), COMPILED)
    )
    assert compiled < 0.8 * eager


def test_offloaded_activations_leave_two_layers_behind_and_are_on_the_host():
    spec = training(precision=BF16, sequence_length=4096)
    keys = {"dp_shard": 2, "micro_batch_size": 8}
    of = group(llama(num_layers=8), spec, keys, keys | {"offload": "activations"})
    found = rank_memory(of.pipeline.ranks[0], of)
    here, away = found.categories["activations"]
    assert found.host[0] == 0
    assert here - away == pytest.approx(found.host[1])
    assert away < 0.4 * here


def test_offloaded_states_are_on_the_host_alone():
    spec = training(precision=BF16)
    of = group(llama(), spec, {"dp_shard": 2}, {"dp_shard": 2, "offload": "cpu"})
    found = rank_memory(of.pipeline.ranks[0], of)
    states = [found.categories[name] for name in ("parameters", "gradients", "optimizer")]
    assert all(each[1] == 0 for each in states)
    full = 3 * found.categories["parameters"][0] + found.categories["parameters"][0]
    assert found.host[1] == pytest.approx(full)
