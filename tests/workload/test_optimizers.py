"""State of optimizers, parameter by parameter."""

import pytest

from meshfit.workload import counts
from meshfit.workload.models import read_model
from meshfit.workload.optimizers import OPTIMIZERS, STATE_PRECISIONS, training_states
from meshfit.workload.training import PRECISIONS


def test_every_precision_has_every_optimizer():
    states = training_states(read_model("gpt2"))
    assert states.keys() == STATE_PRECISIONS.keys()
    assert all(by_optimizer.keys() == OPTIMIZERS.keys() for by_optimizer in states.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16_mixed"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_what_the_native_engine_runs_agrees_with_its_own_count(precision, optimizer):
    model = read_model("mixtral-8x7b")
    expected = counts.training_state_bytes(model, PRECISIONS[precision], optimizer)
    assert training_states(model)[precision][optimizer] == expected


def test_moments_per_parameter():
    model = read_model("llama-2-7b")
    parameters = counts.total_parameters(model)
    of = {name: state.optimizer for name, state in training_states(model)["fp32"].items()}
    assert of["adamw"] == 8 * parameters
    assert of["lion"] == of["sgd_momentum"] == 4 * parameters
    assert of["sgd"] == 0
    assert of["adafactor"] < 0.01 * of["adamw"]
    assert of["adamw_8bit"] == pytest.approx(2 * (1 + 4 / 256) * parameters, rel=1e-3)


def test_muon_has_one_moment_of_matrices_in_layers_and_two_of_the_rest():
    model = read_model("llama-2-7b")
    parts = counts.parameters_by_part(model)
    ends = parts["embedding"] + parts["lm_head"]
    norms = 65 * 4096
    matrices = counts.total_parameters(model) - ends - norms
    found = training_states(model)["fp32"]["muon"].optimizer
    assert found == 4 * (matrices + 2 * (ends + norms))
