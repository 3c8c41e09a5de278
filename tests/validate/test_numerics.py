import pytest

from meshfit.validate.numerics import (
    adapter_of,
    optimizer_of,
    precision_of,
    runtime_of,
    with_defaults,
)
from meshfit.validate.rows import NotModelledError
from meshfit.workload.training import RuntimeSpec
from tests.validate.builders import row


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bf16", "bf16_mixed"),
        ("amp_bf16/MP-DEFAULT", "bf16_mixed"),
        ("bf16 (pure)", "bf16"),
        ("bf16-true + bnb.nf4", "bf16"),
        ("fp16 mixed", "fp16_mixed"),
        ("float8 tensorwise, fp8 all-gather", "fp8_mixed"),
        ("bf16 + fp8 hybrid recipe tensorwise", "fp8_mixed"),
    ],
)
def test_precisions_by_the_words_met(text, name):
    assert precision_of(row(precision=text)).name == name


def test_plain_bf16_is_pure_where_a_framework_means_it_so():
    assert precision_of(row(precision="bf16"), pure=True).name == "bf16"


def test_an_unknown_precision_is_a_reason():
    with pytest.raises(NotModelledError, match="precision: not stated"):
        precision_of(row(precision=""))


@pytest.mark.parametrize(
    ("text", "name"), [("bnb 8-bit Adam", "adamw_8bit"), ("AdamW (fused)", "adamw"), ("", "adamw")]
)
def test_optimizers_by_the_words_met(text, name):
    assert optimizer_of(row(optimizer=text)) == name


def test_adapters_take_the_printed_rank_before_the_default():
    assert adapter_of(row(task="lora", note="lora_rank 64 target"), default_rank=8).rank == 64
    assert adapter_of(row(task="lora"), default_rank=8).rank == 8


def test_quantised_adapters_store_four_bits():
    adapter = adapter_of(row(task="qlora", precision="bf16-true + bnb.nf4"), default_rank=8)
    assert adapter.base_bits == 4
    assert adapter_of(row(task="lora"), default_rank=8).base_bits is None


def test_a_method_that_is_not_low_rank_is_a_reason():
    with pytest.raises(NotModelledError, match="method not modelled: adapter_v2"):
        adapter_of(row(task="adapter_v2"), default_rank=8)


@pytest.mark.parametrize(
    ("attn", "kernel"),
    [
        ("transformer_engine/unfused", "unfused"),
        ("local/auto", "unfused"),
        ("SDPA flash v2", "flash"),
        ("flash(v1, triton/cuda)", "flash1"),
        ("transformer_engine/auto", "auto"),
    ],
)
def test_attention_kernels_by_the_words_met(attn, kernel):
    assert runtime_of(row(attn=attn)).attention == kernel


def test_overlaps_that_a_note_names():
    note = "overlap-grad-reduce, overlap-param-gather, tp-comm-overlap on; read from PNG"
    runtime = runtime_of(row(note=note))
    assert runtime.overlap_gradients
    assert runtime.overlap_parameters
    assert runtime.overlap_tensor_parallel


def test_vanilla_is_the_opposite_of_async():
    assert runtime_of(row(note="vanilla TP")).overlap_tensor_parallel is False
    assert runtime_of(row(note="2D + AsyncTP")).overlap_tensor_parallel is True


def test_buckets_of_deepspeed_count_elements():
    assert runtime_of(row(note="reduce_bucket_size 5e8; ID 1.2")).bucket_bytes == 1_000_000_000


def test_defaults_fill_only_what_is_open():
    runtime = with_defaults(
        RuntimeSpec(compile=True), RuntimeSpec(compile=False, overlap_gradients=True)
    )
    assert (runtime.compile, runtime.overlap_gradients) == (True, True)
