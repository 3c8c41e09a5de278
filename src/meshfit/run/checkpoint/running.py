"""The checkpoints of one run: where it starts, what it saves on the way."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from meshfit.errors import InputError
from meshfit.record.checkpoint import checkpoints
from meshfit.record.schema import CheckpointReport, CheckpointRequest, RunRequest
from meshfit.run.checkpoint.loading import latest, load
from meshfit.run.checkpoint.saving import CheckpointWriter
from meshfit.run.checkpoint.state import TrainingState
from meshfit.run.parallelize import RankModel
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import Corpus


class RunCheckpoints:
    """Resumes and saves as a request asks. All ranks make every call.

    Attributes:
        first_step: steps behind the checkpoint that the run starts from, 0 without.
        load_s: seconds that loading it took on this rank, None without.
    """

    def __init__(
        self, request: RunRequest, model: RankModel, trainer: Trainer, corpus: Corpus
    ) -> None:
        """
        Raises:
            InputError: there is nothing to resume from, it is damaged or of another run, or there is
                something that would be overwritten.
        """
        assert request.checkpoint is not None
        self._asked = request.checkpoint
        self._steps = request.steps
        state = TrainingState(model, trainer.optimizer)
        identity = identity_of(request, corpus)
        self.first_step, self.load_s = _resume(self._asked, state, identity)
        if self.first_step >= request.steps:
            raise InputError(
                f"the checkpoint in {self._asked.folder} has {self.first_step} steps behind it, and "
                f"{request.steps} are asked for in all: nothing is left to do"
            )
        self._writer = CheckpointWriter(
            Path(self._asked.folder),
            state,
            identity=identity,
            layout=request.layout.label,
            keep=self._asked.keep,
            asynchronous=self._asked.asynchronous,
            timeout_s=request.collective_timeout_s,
        )

    def is_due(self, steps: int) -> bool:
        """Whether there is to be a checkpoint with ``steps`` steps behind it."""
        return steps % self._asked.every == 0 or steps == self._steps

    def save(self, steps: int) -> None:
        """Save the state after ``steps`` steps."""
        self._writer.save(steps)

    def close(self) -> tuple[CheckpointReport, ...]:
        """Wait until the last one is good; what each took."""
        return self._writer.close()


def identity_of(request: RunRequest, corpus: Corpus) -> dict[str, Any]:
    """What a run must have in common with another to go on from its checkpoint: the model, the
    optimizer, and the order of the data. The layout is not part of it."""
    config = json.dumps(request.model_config, sort_keys=True, default=str)
    training = request.training
    return {
        "model": hashlib.sha256(config.encode()).hexdigest()[:16],
        "optimizer": training.optimizer,
        "data": corpus.describe(),
        "sequence_length": training.sequence_length,
        "global_batch_size": training.global_batch_size,
    }


def _resume(
    asked: CheckpointRequest, state: TrainingState, identity: dict[str, Any]
) -> tuple[int, float | None]:
    folder = Path(asked.folder)
    if asked.resume:
        begin_s = time.perf_counter()
        return load(latest(folder), state, identity), time.perf_counter() - begin_s
    if found := checkpoints(folder):
        raise InputError(
            f"{folder} holds checkpoints already (the last is {found[-1].name}): resume from it, or "
            f"give another folder"
        )
    return 0, None
