from dataclasses import replace

import numpy as np
import pytest

from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.native.profile import NATIVE
from meshfit.engines.torchtitan.profile import TORCHTITAN
from meshfit.errors import InputError
from meshfit.predict.costs.rates import rates
from meshfit.predict.time.compute import layer_time, optimizer_s
from meshfit.predict.time.passes import cast_bytes, layer_passes
from meshfit.predict.time.work import layer_work
from meshfit.workload.counts import layer_parameters
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, RuntimeSpec
from tests.predict.builders import BF16, WITHOUT_HOST, cluster, group, llama_8b, training

FAST_MEMORY = 1e30


def test_a_layer_takes_its_flops_over_the_achieved_rate():
    spec = training(sequence_length=8192, global_batch_size=1, precision=BF16)
    model, layer = llama_8b(), llama_8b().layers[0]
    rate = replace(rates(cluster().accelerator, "bf16_mixed"), memory_bytes_per_s=FAST_MEMORY)
    time = layer_time(layer, model_group := group(model, spec, {}), rate)
    parameters = layer_parameters(model, layer)
    matmul = 2 * 8192 * (parameters.attention.total + parameters.mlp.total)
    attention = 4 * 4096 * 8192 * 8193 / 2
    assert len(model_group) == 1
    assert time.forward[0] == pytest.approx((matmul + attention) / 800e12, rel=1e-6)
    assert time.backward[0] == pytest.approx((2 * matmul + 2.5 * attention) / 800e12, rel=1e-6)


def test_a_small_matmul_is_bound_by_moving_its_weight():
    spec = training(sequence_length=1, global_batch_size=1, precision=BF16)
    model = llama_8b()
    rate = rates(cluster().accelerator, "bf16_mixed")
    time = layer_time(model.layers[0], group(model, spec, {}), rate)
    parameters = layer_parameters(model, model.layers[0])
    weights = 2 * (parameters.attention.total + parameters.mlp.total)
    assert time.forward[0] == pytest.approx(weights / 3.2e12, rel=0.01)


def test_tensor_parallelism_divides_a_layers_matmuls():
    spec = training(sequence_length=8192, precision=BF16)
    rate = replace(rates(cluster().accelerator, "bf16_mixed"), memory_bytes_per_s=FAST_MEMORY)
    of = group(llama_8b(), spec, {"tp": 1}, {"tp": 4})
    time = layer_time(llama_8b().layers[0], of, rate)
    assert time.forward[0] == pytest.approx(4 * time.forward[1])


def test_latents_are_made_of_a_ranks_own_tokens_where_they_are_gathered():
    """DeepSeek-V3: 1,536 + 512 + 64 columns a token; of a quarter of 8,192 tokens, or of all."""
    spec = training(sequence_length=8192, precision=BF16)
    rate = replace(rates(cluster().accelerator, "bf16_mixed"), memory_bytes_per_s=FAST_MEMORY)
    model = read_model("deepseek-v3")
    own, every = (
        layer_time(model.layers[0], group(model, spec, {"tp": 4}, profile=profile), rate)
        for profile in (WITHOUT_HOST, replace(WITHOUT_HOST, gathers_latents=False))
    )
    spared = 2 * 8192 * 3 / 4 * 7168 * (1536 + 512 + 64)
    assert every.forward[0] - own.forward[0] == pytest.approx(spared / 800e12)


def test_a_gpu_hides_the_hosts_work_and_a_cpu_rank_adds_it():
    spec = training(sequence_length=8192, precision=BF16)
    model = llama_8b()
    slow = replace(NATIVE, host_s_per_layer=10.0, tensor_parallel_host_s_per_layer=5.0)
    none = replace(NATIVE, host_s_per_layer=0.0, tensor_parallel_host_s_per_layer=0.0)
    keys = ({"tp": 1}, {"tp": 2})
    gpu, cpu = (
        rates(cluster(device_type=kind).accelerator, "bf16_mixed") for kind in ("cuda", "cpu")
    )
    device = layer_time(model.layers[0], group(model, spec, *keys, profile=none), gpu).forward
    waiting = group(model, spec, *keys, profile=slow)
    assert layer_time(model.layers[0], waiting, gpu).forward.tolist() == [10, 15]
    on_cpu = layer_time(model.layers[0], waiting, cpu).forward
    assert on_cpu == pytest.approx(device + np.array([10, 15]))
    half_a_core = layer_time(model.layers[0], waiting, replace(cpu, core_share=0.5)).forward
    assert half_a_core == pytest.approx(device + 2 * np.array([10, 15]))


def test_the_optimizer_passes_over_states_in_memory():
    rate = rates(cluster().accelerator, "fp32")
    one = np.array([1e9])
    clipped = optimizer_s(one, one, training(), rate)[0]
    plain = optimizer_s(one, one, training(max_grad_norm=None), rate)[0]
    # reads gradient, parameter and two moments, writes the last three; clipping passes thrice
    assert plain == pytest.approx(1e9 * 4 * 7 / 3.2e12)
    assert clipped == pytest.approx(1e9 * 4 * 10 / 3.2e12)


def test_an_accelerator_without_a_rate_for_the_precision_is_refused():
    accelerator = replace(cluster().accelerator, peak_flops_per_s={"fp8": 1e15})
    message = "accelerator test has no peak rate for fp32; known: fp8"
    with pytest.raises(InputError, match=message):
        rates(accelerator, "fp32")


@pytest.mark.parametrize(
    ("profile", "forward", "backward"), [(TORCHTITAN, 38 + 4 / 2, 10 + 25 / 2), (MEGATRON, 6, 9)]
)
def test_each_further_part_of_a_ring_is_joined_to_those_before(profile, forward, backward):
    """Keys and values together are half as wide as queries; of 16 tokens a rank holds 4 of 4 parts."""
    model = llama_8b()
    ring, gathered = (
        layer_passes(
            model.layers[0],
            layer_work(model.layers[0], model.hidden_size),
            group(model, training(), {"cp": 4, "cp_method": method}, profile=profile),
        )
        for method in ("ring", "all_gather")
    )
    elements = 4096 * training().sequence_length / 4
    assert ring.forward - gathered.forward == pytest.approx(3 * elements * forward)
    assert ring.backward - gathered.backward == pytest.approx(3 * elements * backward)


def test_delayed_scales_cast_apart_what_no_norm_writes():
    model = llama_8b()
    in_fp8 = training(precision=PRECISIONS["fp8_mixed"])
    delayed = cast_bytes(group(model, in_fp8, {}))
    assert delayed is not None
    assert delayed.input_of_row == delayed.input_of_column + 3
    recipe = replace(in_fp8, runtime=RuntimeSpec(fp8_recipe="tensorwise"))
    tensorwise = cast_bytes(group(model, recipe, {}))
    assert tensorwise is not None
    assert tensorwise.input_of_row == tensorwise.input_of_column == 3
    assert cast_bytes(group(model, training(), {})) is None
