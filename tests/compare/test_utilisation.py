import pytest

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.compare.utilisation import peak_of, utilisation
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.counts import head_tensors, training_flops_per_token
from meshfit.workload.families import read_family
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import PRECISIONS, TrainingSpec

H100 = 989.5e12
BF16 = TrainingSpec(sequence_length=4096, global_batch_size=8, precision=PRECISIONS["bf16_mixed"])


@pytest.fixture(scope="module")
def model() -> ModelSpec:
    return read_family(
        "small",
        {
            "model_type": "llama",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        },
    )


def device(**changes: object) -> AcceleratorSpec:
    values = {
        "name": "H200",
        "device_type": "cuda",
        "memory_bytes": 1,
        "peak_flops_per_s": {"bf16": H100},
        "matmul_fraction": 0.8,
        "memory_bytes_per_s": 1.0,
    }
    return AcceleratorSpec(**(values | changes))


@pytest.mark.parametrize(("tflops", "mfu"), [(420, 0.4245), (480, 0.485)])
def test_f01_shares_are_of_the_dense_peak_which_is_stated(
    model: ModelSpec, tflops: float, mfu: float
) -> None:
    """The same 420 TFLOP/s over 1,979, the peak with sparsity, would look like 21 %."""
    peak = peak_of(device(), BF16)
    assert peak is not None
    tokens_per_s = tflops * 1e12 / training_flops_per_token(model, BF16.sequence_length)
    found = utilisation(model, BF16, tokens_per_s_per_device=tokens_per_s, peak_flops_per_s=peak)
    assert found.mfu == pytest.approx(mfu, abs=5e-4)
    assert found.flops_per_s == pytest.approx(tflops * 1e12)
    assert found.peak_flops_per_s == H100


def test_f03_a_device_without_a_stated_peak_has_no_utilisation() -> None:
    assert peak_of(device(peak_flops_per_s={}), BF16) is None
    assert peak_of(device(device_type="cpu"), BF16) is None


def test_f05_f13_the_formula_says_what_is_counted(model: ModelSpec) -> None:
    found = utilisation(model, BF16, tokens_per_s_per_device=1.0, peak_flops_per_s=H100)
    assert "causal attention" in found.formula
    assert "3 x forward" in found.formula


def test_full_recompute_counts_for_the_hardware_and_not_for_the_model(model: ModelSpec) -> None:
    layout = LayoutSpec(recompute="full")
    found = utilisation(
        model, BF16, tokens_per_s_per_device=1e4, peak_flops_per_s=H100, layout=layout
    )
    assert found.hfu is not None
    per_token = training_flops_per_token(model, BF16.sequence_length)
    head = 2 * sum(tensor.matmul_elements for tensor in head_tensors(model))
    assert found.hfu / found.mfu == pytest.approx((4 * per_token / 3 - head) / per_token)


def test_what_recompute_of_parts_of_a_layer_costs_is_not_guessed(model: ModelSpec) -> None:
    layout = LayoutSpec(recompute="selective")
    found = utilisation(
        model, BF16, tokens_per_s_per_device=1e4, peak_flops_per_s=H100, layout=layout
    )
    assert found.hfu is None


def test_more_than_the_peak_is_an_error_that_shows_both_figures(model: ModelSpec) -> None:
    tokens_per_s = 2 * H100 / training_flops_per_token(model, BF16.sequence_length)
    with pytest.raises(InputError, match=r"MFU would be 200.0%.*dense peak of 9.9e\+14"):
        utilisation(model, BF16, tokens_per_s_per_device=tokens_per_s, peak_flops_per_s=H100)
