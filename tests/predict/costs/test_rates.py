from dataclasses import replace

import numpy as np
import pytest

from meshfit.cluster.catalogue import accelerator
from meshfit.errors import InputError
from meshfit.predict.costs.constants import shipped_constants
from meshfit.predict.costs.rates import rates

BIG = np.array([8192.0])


def tflops(name, precision, m=BIG, n=BIG, k=BIG, **keys):
    return float(rates(accelerator(name), precision, **keys).linear.rate(m, n, k)[0]) / 1e12


def test_a_measured_chip_achieves_its_share_of_the_table():
    constants = shipped_constants()
    assert tflops("H100-SXM5-80", "bf16_mixed", kernels="megatron") == pytest.approx(
        constants["matmul.H100.16bit"] * 791, rel=0.02
    )


def test_pytorchs_kernels_are_slower_by_their_share():
    ours, theirs = (
        tflops("A100-SXM4-80", "bf16_mixed", kernels=k) for k in ("pytorch", "megatron")
    )
    assert ours / theirs == pytest.approx(shipped_constants()["engine.pytorch"])


def test_fp8_is_faster_and_a_scale_a_row_costs_some_of_it():
    plain, fp8 = (tflops("H100-SXM5-80", name) for name in ("bf16_mixed", "fp8_mixed"))
    rowwise = tflops("H100-SXM5-80", "fp8_mixed", fp8_recipe="rowwise")
    assert plain < rowwise < fp8


def test_a_power_limit_slows_by_less_than_it_takes():
    h100 = accelerator("H100-SXM5-80")
    limited = rates(replace(h100, power_limit_w=500.0), "bf16_mixed")
    share = limited.linear.rate(BIG, BIG, BIG) / rates(h100, "bf16_mixed").linear.rate(
        BIG, BIG, BIG
    )
    assert 500 / 700 < share[0] < 1
    unlimited = rates(replace(h100, power_limit_w=900.0), "bf16_mixed")
    assert unlimited == rates(h100, "bf16_mixed")


def test_without_a_table_whole_tiles_and_waves_are_computed():
    v100 = rates(accelerator("V100-SXM2-32"), "fp16_mixed").linear
    even = v100.rate(np.array([128.0 * 80]), np.array([128.0]), BIG)
    one_more = v100.rate(np.array([128.0 * 81]), np.array([128.0]), BIG)
    cut = v100.rate(np.array([128.0 * 80 - 64]), np.array([128.0]), BIG)
    assert one_more[0] == pytest.approx(even[0] * 81 / 160, rel=0.01)
    assert cut[0] < even[0]


def test_older_attention_kernels_are_slower():
    h100 = rates(accelerator("H100-SXM5-80"), "bf16_mixed")
    heads, length = np.array([32.0]), np.array([8192.0])
    found = [
        h100.attention_rate(heads, length, 128, kernel)[0]
        for kernel in ("flash1", "flash", "cudnn")
    ]
    assert found == sorted(found)
    a100 = rates(accelerator("A100-SXM4-80"), "bf16_mixed")
    assert a100.attention_rate(heads, length, 128, "flash") == pytest.approx(
        a100.attention_rate(heads, length, 128, "cudnn")
    )


def test_an_accelerator_without_fp8_is_refused():
    with pytest.raises(InputError, match="A100-SXM4-80 has no peak rate for fp8_mixed"):
        rates(accelerator("A100-SXM4-80"), "fp8_mixed")


@pytest.mark.parametrize("precision", ["bf16_mixed", "bf16"])
def test_bf16_on_an_accelerator_without_it_is_computed_in_fp32(precision):
    v100 = accelerator("V100-SXM2-32")
    assert tflops("V100-SXM2-32", precision) <= v100.peak_flops_per_s["fp32"] / 1e12
    assert tflops("V100-SXM2-32", "fp16_mixed") > 2 * tflops("V100-SXM2-32", precision)
