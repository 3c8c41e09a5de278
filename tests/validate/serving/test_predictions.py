"""Which rows are modelled, and with which model."""

from dataclasses import replace

import pytest

from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.validate.rows import NotModelledError
from meshfit.validate.serving.layouts import throughput_choices
from meshfit.validate.serving.models import served_model
from meshfit.validate.serving.predictions import ServingPrediction, predict_serving
from meshfit.validate.serving.rows import ServingRow
from meshfit.workload.quantization import read_quantization

ROW = ServingRow(
    id="one",
    backend="vllm",
    release="0.19.0",
    model="Qwen/Qwen3-32B",
    system="h100_sxm",
    precision="fp8",
    linear_mode="fp8",
    expert_mode="fp8",
    aggregated=True,
    prompt_tokens=1024,
    output_tokens=512,
    layout=ServingLayout(tp=4),
    stated=(4, 1, 1, 1, 1),
    concurrency=16,
    ttft_s=0.2,
    tpot_s=0.0125,
)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"layout": None}, "two pools"),
        ({"concurrency": None}, "concurrency is not stated"),
        ({"model": "nobody/unheard-of"}, "model not in the catalogue: nobody/unheard-of"),
        ({"system": "h999_sxm"}, "not in the catalogue: h999_sxm"),
        ({"backend": "llamacpp"}, "backend not known: llamacpp"),
        ({"linear_mode": "fp3"}, "quantisation not known: fp3"),
    ],
)
def test_what_is_not_modelled_says_why(changed, reason):
    predictions = predict_serving([ROW, replace(ROW, **changed)])
    assert predictions[0].tpot_s is not None
    assert predictions[1].tpot_s is None
    assert reason in predictions[1].reason


def test_nothing_of_what_was_measured_is_looked_at():
    one, other = predict_serving([ROW, replace(ROW, ttft_s=9.0, tpot_s=9.0)])
    assert (one.tpot_s, one.ttft_s) == (other.tpot_s, other.ttft_s)


@pytest.mark.parametrize(
    ("name", "modes", "format_name"),
    [
        ("deepseek-ai/DeepSeek-R1", ("fp8", "fp8"), "fp8 in blocks of 128 x 128"),
        ("meta-llama/Llama-3.3-70B-Instruct", ("fp8", "fp8"), "fp8, a scale a tensor"),
        ("nvidia/DeepSeek-R1-NVFP4", ("nvfp4", "nvfp4"), "nvfp4 (groups of 16)"),
        ("openai/gpt-oss-120b", ("nvfp4", "nvfp4"), "mxfp4 (groups of 32)"),
        ("MiniMaxAI/MiniMax-M2.5", ("fp8", "fp8"), "fp8, a scale a tensor"),
    ],
)
def test_a_model_is_quantised_as_its_row_says_and_its_checkpoints_are(name, modes, format_name):
    quantization = read_quantization(served_model(name, *modes).config)
    assert quantization is not None
    assert quantization.name == format_name


def test_a_model_without_a_mode_has_16_bits():
    assert read_quantization(served_model("Qwen/Qwen3-32B", "", "").config) is None


def test_an_unknown_model_is_not_modelled():
    with pytest.raises(NotModelledError, match="not in the catalogue"):
        served_model("nobody/unheard-of", "", "")


def test_regret_is_what_the_predicted_best_lacks():
    def at(tp, predicted, measured):
        row = replace(ROW, layout=ServingLayout(tp=tp), stated=(tp, 1, 1, 1, 1), tpot_s=measured)
        return ServingPrediction(row=row, tpot_s=predicted, ttft_s=0.1)

    (right,) = throughput_choices([at(1, 0.02, 0.02), at(2, 0.015, 0.016)])
    assert (right.regret, right.pairs_right, right.layouts) == (0.0, 1.0, 2)
    (wrong,) = throughput_choices([at(1, 0.04, 0.02), at(2, 0.015, 0.016)])
    assert wrong.regret == pytest.approx(1 - (0.5 / 0.016) / (1 / 0.02))
    assert wrong.pairs_right == 0.0


def test_what_a_release_adds_is_left_out_where_it_is_not_known():
    known, other = replace(ROW, release="0.15.1"), replace(ROW, release="0.19.0")
    of_releases = [one.tpot_s for one in predict_serving([known, other])]
    assert of_releases[0] != of_releases[1]
    (unknown,) = predict_serving([replace(ROW, release="")])
    for one in predict_serving([known, other], knows_release=False):
        assert (one.tpot_s, one.ttft_s) == (unknown.tpot_s, unknown.ttft_s)
        assert one.row in (known, other)


def test_two_pools_are_predicted_where_their_workers_are_stated():
    pools = DisaggregatedLayout(prefill=ServingLayout(tp=2), decode=ServingLayout(replicas=2, tp=4))
    row = replace(ROW, layout=None, aggregated=False, pools=pools)
    busy = replace(row, concurrency=512)
    found, crowded = predict_serving([row, busy])
    assert 0 < found.tpot_s < crowded.tpot_s
    assert found.ttft_s < crowded.ttft_s
