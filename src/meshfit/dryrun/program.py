"""Builds the runner's program of one rank on fake tensors, and takes one optimizer step."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes

from meshfit.cluster.topology import DeviceType
from meshfit.dryrun.experts import even_loads
from meshfit.dryrun.operators import cuda_operators
from meshfit.dryrun.recorder import Recorder
from meshfit.dryrun.trace import Trace
from meshfit.dryrun.world import adapt_ddp, fake_tensors, fake_world, replace_buffers
from meshfit.mesh.spec import LayoutSpec
from meshfit.run.axes import axes_of_groups
from meshfit.run.mesh import RankMesh, build_mesh
from meshfit.run.model.weights import materialise
from meshfit.run.parallelize import RankModel, build_bare_model, with_replicas
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import Corpus, SyntheticCorpus
from meshfit.workload.prompts import END_TOKEN
from meshfit.workload.training import TrainingSpec

DEVICE = torch.device("cpu")
"""Of the fake tensors: autograd on fake CUDA tensors ends a process whose PyTorch has no CUDA."""


def trace_of_step(
    config: Mapping[str, Any],
    layout: LayoutSpec,
    training: TrainingSpec,
    rank: int,
    device_type: DeviceType = "cpu",
) -> Trace:
    """The second optimizer step of ``rank``: optimizer state and buckets are there already.

    Raises:
        InputError: the runner has no code for this layout, or not with this model.
    """
    is_cuda = device_type == "cuda"
    with fake_world(rank, layout.world_size):
        mesh = build_mesh(layout, DEVICE.type)
        bare = build_bare_model(config, mesh, training.precision, adapter=training.adapter)
        # Before tensors are fake, of which no mesh can be made.
        axes = axes_of_groups(mesh, bare.experts)
        operators = cuda_operators() if is_cuda else nullcontext()
        corpus = _corpus(config, training)
        is_packed = corpus.document_end is not None
        with fake_tensors(is_packed=is_packed) as mode, even_loads(), operators:
            model = _with_memory(bare, mesh)
            trainer = _FakeTrainer(model, mesh, training, corpus, mode)
            trainer.warm_up()
            with Recorder(
                model.stages, trainer.optimizer, axes, device_type=device_type
            ) as recorder:
                _take_step(trainer, 1)
            return recorder.trace()


class _FakeTrainer(Trainer):
    """The runner's trainer; its tokens are shapes."""

    def __init__(
        self,
        model: RankModel,
        mesh: RankMesh,
        training: TrainingSpec,
        corpus: Corpus,
        mode: FakeTensorMode,
    ) -> None:
        super().__init__(model, mesh, training, corpus, DEVICE)
        self._model = model
        self._mode = mode

    def warm_up(self) -> None:
        """Leave optimizer state, FSDP2's and DDP's buffers and receive buffers as a step does.

        A step of one micro-batch (which a pipeline runs as GPipe) does for that; another trainer
        takes it with the same model and hands its optimizer over. Virtual stages take a whole step.
        """
        layout = self._layout
        if layout.vpp > 1:
            _take_step(self, 0)
            return
        sequences = layout.micro_batch_size * layout.data_parallel_size
        first = _FakeTrainer(
            self._model,
            replace(self.mesh, layout=replace(layout, schedule="gpipe")),
            replace(self._training, global_batch_size=sequences),
            self._corpus,
            self._mode,
        )
        _take_step(first, 0)
        self.optimizer = first.optimizer
        self._partial_gradients = first._partial_gradients
        if layout.pp > 1:
            schedule: Any = vars(self._runner)["_schedule"]
            schedule._initialize_stage((), {})

    def _tokens(self, step: int, count: int) -> Tensor:
        with _disable_current_modes(), self._mode:  # host memory: no recorder shall see it made
            shape = (count, self._training.sequence_length + 1)
            return torch.empty(shape, dtype=torch.int64)


def _with_memory(bare: RankModel, mesh: RankMesh) -> RankModel:
    for stage in bare.stages:
        materialise(stage, DEVICE)
        replace_buffers(stage, DEVICE)
    model = with_replicas(bare, mesh)
    for module in model.modules:
        if isinstance(module, DistributedDataParallel):
            adapt_ddp(module)
    return model


class _PackedCorpus(SyntheticCorpus):
    """Sequences of several documents each, of no content."""

    document_end = END_TOKEN


def _corpus(config: Mapping[str, Any], training: TrainingSpec) -> Corpus:
    """Synthetic whatever the job's own: only its counts are asked for, and whether documents end."""
    kind = _PackedCorpus if training.data.source == "documents" else SyntheticCorpus
    return kind(
        seed=0,
        vocab_size=config["vocab_size"],
        sequence_length=training.sequence_length,
        global_batch_size=training.global_batch_size,
    )


def _take_step(trainer: Trainer, step: int) -> None:
    trainer.accumulate_gradients(step)
    trainer.update()
