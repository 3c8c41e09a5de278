"""The counting process agrees with our own counts, and never dies of a config."""

import io
import json

import pytest

from meshfit.run import verify
from meshfit.workload import counts
from meshfit.workload.families import read_family

TINY = {
    "model_type": "mixtral", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_local_experts": 4,
}  # fmt: skip


def answer(monkeypatch, capsys, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    verify.main()
    return json.loads(capsys.readouterr().out)


def test_a_built_model_counts_as_its_config_does(monkeypatch, capsys):
    document = answer(monkeypatch, capsys, json.dumps(TINY))
    model = read_family("tiny", TINY)
    assert document["class"] == "MixtralForCausalLM"
    assert document["total"] == counts.total_parameters(model)
    assert document["by_part"] == counts.parameters_by_part(model)


def test_quantisation_changes_no_count():
    quantized = {**TINY, "quantization_config": {"quant_method": "fp8"}}
    assert verify.counted(quantized)["total"] == verify.counted(TINY)["total"]


@pytest.mark.parametrize(
    "text", ['{"model_type": "nothing"}', "{}", "[", '{"model_type": "t5", "d_model": "x"}']
)
def test_what_cannot_be_built_is_answered_with_the_reason(monkeypatch, capsys, text):
    assert answer(monkeypatch, capsys, text)["error"]
