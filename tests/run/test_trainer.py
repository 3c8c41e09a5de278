"""What a step needs of its data."""

import json
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.workload.corpus import open_corpus
from meshfit.workload.training import DataSpec
from tests.run.layouts import CONFIGS, Case

CASE = Case(model="llama_bytes", keys={"micro_batch_size": 8})


def test_a_step_without_a_target_is_refused_and_not_divided_by_zero(tmp_path: Path) -> None:
    """Eight sequences of 16 tokens, all of them inside of one prompt."""
    import torch

    from meshfit.run.mesh import RankMesh
    from meshfit.run.model.weights import write_initial_weights
    from meshfit.run.parallelize import build_rank_model
    from meshfit.run.trainer import Trainer

    lessons = tmp_path / "lessons.jsonl"
    lessons.write_text(json.dumps({"prompt": "why? " * 100, "answer": "because"}))
    training, config = CASE.training, CONFIGS[CASE.model]
    corpus = open_corpus(
        DataSpec(source="documents", path=str(lessons)),
        vocab_size=config["vocab_size"],
        sequence_length=training.sequence_length,
        global_batch_size=training.global_batch_size,
    )
    mesh, device = RankMesh(layout=CASE.layout, devices=None), torch.device("cpu")
    write_initial_weights(config, tmp_path / "weights", seed=0)
    model = build_rank_model(config, tmp_path / "weights", mesh, training.precision, device)
    trainer = Trainer(model, mesh, training, corpus, device)
    with trainer.clock.step(), pytest.raises(InputError, match="no token of global batch 0 is a"):
        trainer.accumulate_gradients(0)
