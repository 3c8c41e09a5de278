"""Parts of a whole model, measured in one process."""

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.predict.memory.activations import layer_tensors
from meshfit.predict.shape.layer_basis import cast, layer_basis
from meshfit.predict.shape.saved import total
from meshfit.workload.corpus import open_corpus
from meshfit.workload.counts import total_parameters
from meshfit.workload.families import read_family
from tests.run.layouts import CONFIGS, Case

CASE = Case(model="llama", keys={"micro_batch_size": 8})


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    import torch

    from meshfit.run.mesh import RankMesh
    from meshfit.run.model.weights import write_initial_weights
    from meshfit.run.parallelize import build_rank_model
    from meshfit.run.parts import measure_parts
    from meshfit.run.trainer import Trainer

    weights = tmp_path_factory.mktemp("parts") / "weights"
    training, config = CASE.training, CONFIGS[CASE.model]
    corpus = open_corpus(
        training.data,
        vocab_size=config["vocab_size"],
        sequence_length=training.sequence_length,
        global_batch_size=training.global_batch_size,
    )
    mesh, device = RankMesh(layout=CASE.layout, devices=None), torch.device("cpu")
    write_initial_weights(config, weights, seed=0)
    model = build_rank_model(config, weights, mesh, training.precision, device)
    trainer = Trainer(model, mesh, training, corpus, device)
    return measure_parts(model, trainer, device, range(3))


@pytest.fixture(scope="module")
def model():
    return read_family("llama", CONFIGS[CASE.model])


def test_parts_are_the_embedding_every_layer_and_the_head(parts, model):
    layers = [f"layer {number}" for number in range(len(model.layers))]
    assert [part.name for part in parts] == ["embedding", *layers, "head"]
    assert all(part.seconds > 0 for part in parts)


def test_parameters_of_all_parts_are_those_of_the_model(parts, model):
    assert sum(part.parameter_bytes for part in parts) == 4 * total_parameters(model)
    assert sum(part.trained_bytes for part in parts) == 4 * total_parameters(model)


def test_what_a_layer_keeps_is_what_the_prediction_counts(parts, model):
    training = CASE.training
    basis = layer_basis(model, training, NATIVE, cast(training.precision), on_cpu=True)
    tokens = training.global_batch_size * training.sequence_length
    predicted = tokens * total(layer_tensors(model.layers[1], basis)).undivided
    assert parts[2].kept_bytes == pytest.approx(predicted, rel=0.03)


def test_the_head_keeps_the_norms_output_twice_and_log_probabilities(parts, model):
    """Normalised hidden states before and after the weight. What the norm reads is the last layer's, and
    the logits are gone once the loss has its logarithms."""
    tokens = CASE.training.global_batch_size * CASE.training.sequence_length
    expected = tokens * 4 * (2 * model.hidden_size + model.vocab_size)
    assert parts[-1].kept_bytes == pytest.approx(expected, rel=0.01)
