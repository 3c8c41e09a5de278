"""Checkpoints of one process: what is good, what is refused, and what an interruption leaves."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshfit.errors import InputError
from meshfit.record.checkpoint import MANIFEST_NAME, checkpoint_path, checkpoints, read_manifest
from meshfit.run.faults import FAULT_VARIABLE
from tests.run.layouts import CONFIGS, Case

CASE = Case(model="llama", keys={"micro_batch_size": 8})


class Run:
    """A small run of one process that saves into a folder."""

    def __init__(self, weights: Path, case: Case = CASE) -> None:
        import torch

        from meshfit.run.checkpoint.state import TrainingState
        from meshfit.run.mesh import RankMesh
        from meshfit.run.parallelize import build_rank_model
        from meshfit.run.trainer import Trainer
        from meshfit.workload.corpus import open_corpus

        mesh, device = RankMesh(layout=case.layout, devices=None), torch.device("cpu")
        precision = case.training.precision
        self.model = build_rank_model(CONFIGS[case.model], weights, mesh, precision, device)
        corpus = open_corpus(
            case.training.data,
            vocab_size=CONFIGS[case.model]["vocab_size"],
            sequence_length=case.training.sequence_length,
            global_batch_size=case.training.global_batch_size,
        )
        self.trainer = Trainer(self.model, mesh, case.training, corpus, device)
        self.state = TrainingState(self.model, self.trainer.optimizer)

    def step(self, step: int) -> float:
        self.trainer.accumulate_gradients(step)
        self.trainer.update()
        return self.trainer.losses()[-1]

    def writer(self, folder: Path, *, keep: int = 2, asynchronous: bool = False) -> Any:
        from meshfit.run.checkpoint.saving import CheckpointWriter

        return CheckpointWriter(
            folder,
            self.state,
            identity=IDENTITY,
            layout=CASE.layout.label,
            keep=keep,
            asynchronous=asynchronous,
            timeout_s=1.0,
        )


IDENTITY: Mapping[str, Any] = {"model": "ours", "optimizer": "adamw", "global_batch_size": 8}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from meshfit.run.model.weights import write_initial_weights

    folder = tmp_path_factory.mktemp("weights") / "llama"
    write_initial_weights(CONFIGS["llama"], folder, seed=0)
    return folder


@pytest.fixture
def saved(weights: Path, tmp_path: Path) -> Path:
    """A good checkpoint after one step."""
    run = Run(weights)
    run.step(0)
    writer = run.writer(tmp_path)
    writer.save(1)
    writer.close()
    return checkpoint_path(tmp_path, 1)


def load(checkpoint: Path, run: Run, **identity: Any) -> int:
    from meshfit.run.checkpoint.loading import load

    return load(checkpoint, run.state, {**IDENTITY, **identity})


def test_a_resumed_run_goes_on_as_the_run_that_was_not_interrupted(
    weights: Path, tmp_path: Path
) -> None:
    """In the background, too: what is written is the state at the call, not that at the end."""
    run = Run(weights)
    run.step(0)
    writer = run.writer(tmp_path, asynchronous=True)
    writer.save(1)
    expected = [run.step(1), run.step(2)]
    (report,) = writer.close()
    assert 0 < report.blocked_s <= report.written_s
    assert report.size_bytes == read_manifest(checkpoint_path(tmp_path, 1)).size_bytes

    resumed = Run(weights)
    assert load(checkpoint_path(tmp_path, 1), resumed) == 1
    assert [resumed.step(1), resumed.step(2)] == expected


def test_only_the_last_good_ones_are_kept(weights: Path, tmp_path: Path) -> None:
    run = Run(weights)
    writer = run.writer(tmp_path, keep=2)
    for step in range(4):
        run.step(step)
        writer.save(step + 1)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-3", "step-4"]


def test_an_interrupted_save_leaves_the_last_good_one(
    weights: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Struck when all shards are written and the checkpoint has neither manifest nor name."""
    run = Run(weights)
    load(saved, run)
    run.step(1)
    monkeypatch.setenv(FAULT_VARIABLE, "raise:phase=save:step=2")
    with pytest.raises(RuntimeError, match="fault injected"):
        run.writer(saved.parent).save(2)
    assert checkpoints(saved.parent) == [saved]
    assert any(path.name.startswith(".step-2") for path in saved.parent.iterdir())

    monkeypatch.delenv(FAULT_VARIABLE)
    run.writer(saved.parent).save(2)  # what the interrupted one left is in nobody's way
    assert [path.name for path in checkpoints(saved.parent)] == ["step-1", "step-2"]
    assert not any(path.name.startswith(".step-2") for path in saved.parent.iterdir())


def test_a_save_that_fails_in_the_background_is_heard_of(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "raise:phase=save")
    run = Run(weights)
    run.step(0)
    writer = run.writer(tmp_path, asynchronous=True)
    writer.save(1)
    with pytest.raises(RuntimeError, match="fault injected"):
        writer.close()


def test_a_changed_byte_is_noticed(weights: Path, saved: Path) -> None:
    shard = saved / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged: __0_0\.distcp has changed since"):
        load(saved, Run(weights))


def test_a_short_file_and_a_missing_one_are_noticed(weights: Path, saved: Path) -> None:
    shard = saved / "__0_0.distcp"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=rf"has {len(whole) - 9} bytes instead of {len(whole)}"):
        load(saved, Run(weights))
    shard.unlink()
    with pytest.raises(InputError, match=r"__0_0\.distcp is missing"):
        load(saved, Run(weights))


def test_a_folder_that_is_no_checkpoint_of_ours_is_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"no checkpoint of meshfit: it has no {MANIFEST_NAME}"):
        load(tmp_path, Run(weights))
    (tmp_path / MANIFEST_NAME).write_text("{")
    with pytest.raises(InputError, match=r"is damaged: manifest\.json cannot be read"):
        load(tmp_path, Run(weights))


def test_a_checkpoint_of_another_run_is_refused_with_what_differs(
    weights: Path, saved: Path
) -> None:
    with pytest.raises(
        InputError, match="of another run: global_batch_size is 8 there and 16 here"
    ):
        load(saved, Run(weights), global_batch_size=16)


def test_another_shape_is_refused_with_both(
    weights: Path, saved: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from meshfit.run.model.weights import write_initial_weights

    other = tmp_path_factory.mktemp("weights") / "uneven"
    write_initial_weights(CONFIGS["llama_uneven"], other, seed=0)
    case = replace(CASE, model="llama_uneven")
    with pytest.raises(InputError, match=r"in the shape \(64, 32\), but this run in \(67, 32\)"):
        load(saved, Run(other, case))


def test_e05_a_checkpoint_without_the_moments_of_some_parameter_is_refused(
    weights: Path, saved: Path
) -> None:
    """Loading that succeeds without them would go on from moments of zero."""
    import torch.distributed.checkpoint as dcp

    metadata = dcp.FileSystemReader(saved).read_metadata()
    stored = metadata.state_dict_metadata
    for key in ("exp_avg", "exp_avg_sq", "step"):
        del stored[f"optimizer.model.norm.weight.{key}"]
    with pytest.raises(
        InputError, match=r"no optimizer state of model\.norm\.weight, but of others"
    ):
        Run(weights).state.prepare(metadata)


def test_a_checkpoint_with_packed_matrices_in_another_number_of_shards_is_refused(
    weights: Path, saved: Path
) -> None:
    """Their rows lie in the order of the shards, so that they would be read in a wrong one."""
    import torch.distributed.checkpoint as dcp

    metadata = dcp.FileSystemReader(saved).read_metadata()
    stored = metadata.state_dict_metadata
    stored["model.model.norm.weight in 2 shards"] = stored.pop("model.model.norm.weight")
    with pytest.raises(
        InputError, match=r"has model\.model\.norm\.weight in 2 shards, but this run has it whole"
    ):
        Run(weights).state.prepare(metadata)
