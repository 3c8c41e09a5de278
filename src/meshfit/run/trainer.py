"""The optimizer step of one rank: data, forward and backward, gradient norm, update."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from meshfit.errors import InputError
from meshfit.measure.timing import StepClock
from meshfit.mesh.spec import LayoutSpec
from meshfit.run.context.refusals import check_sequence
from meshfit.run.data import GradientSync
from meshfit.run.gradients import GlobalNorm
from meshfit.run.mesh import RankMesh
from meshfit.run.model.documents import separate_documents
from meshfit.run.model.loss import IGNORED, divided_logits
from meshfit.run.optimizer.build import build_optimizer
from meshfit.run.parallelize import RankModel
from meshfit.run.pipeline.tied import build_tied_gradients
from meshfit.workload.corpus import Corpus
from meshfit.workload.training import TrainingSpec


class Trainer:
    """Runs optimizer steps; losses and norms stay on the device until asked for."""

    def __init__(
        self,
        model: RankModel,
        mesh: RankMesh,
        training: TrainingSpec,
        corpus: Corpus,
        device: torch.device,
    ) -> None:
        check_batch(mesh.layout, training)
        window = getattr(model.stages[0].model.config, "sliding_window", None)
        check_sequence(mesh.layout, training.sequence_length, window)
        if corpus.document_end is not None:
            separate_documents(model.stages, mesh.layout, corpus.document_end)
        parameters = list(model.parameters_by_name().values())
        self.clock = StepClock(device)
        self._training = training
        self._layout = mesh.layout
        self.mesh = mesh
        self._corpus = corpus
        self._device = device
        self._context = model.stages[0].context_parallel
        self._has_first = model.stages[0].is_first
        self._has_last = model.stages[-1].is_last
        self._runner = _build_runner(model, mesh, training, device)
        self._partial_gradients = _build_partial_gradients(parameters, mesh)
        self._tied_gradients = build_tied_gradients(model, mesh)
        self._experts = model.experts
        if model.experts is not None:
            model.experts.start(device)
        self._norm = GlobalNorm(parameters, mesh, model.tied_copy)
        copies = [] if model.tied_copy is None else [model.tied_copy]
        self.optimizer = build_optimizer(
            [*parameters, *copies], training, mesh, model.layer_matrices()
        )
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []

    def accumulate_gradients(self, step: int, *, loss_factor: float = 1.0) -> None:
        """Forward and backward of this rank's share of a step; leaves the whole step's gradients.

        ``loss_factor`` multiplies this rank's loss: an injected fault passes NaN.

        Raises:
            InputError: the step's data have nothing to learn.
        """
        if self._experts is not None:
            self._experts.begin_step(step)
        with self.clock.input_wait():
            inputs, labels = self.load(step)
        # Gradients are averaged over ranks; the loss is a mean over the step's valid tokens.
        scale = self._layout.gradient_ranks / _targets(self._corpus, step)
        with divided_logits(self._layout.tp):
            loss = self._runner.run(inputs, labels, scale * loss_factor)
        if self._partial_gradients is not None:
            self._partial_gradients.reduce()
        if self._experts is not None:
            self._experts.finish_gradients()
        if self._tied_gradients is not None:
            self._tied_gradients.reduce()
        self._losses.append(loss)

    def update(self) -> None:
        """Clip by the global norm and take the optimizer step."""
        norm = self._norm.measure()
        if self._training.max_grad_norm is not None:
            self._norm.clip(norm, self._training.max_grad_norm)
        self._norms.append(norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self._experts is not None:
            self._experts.end_step()

    def load(self, step: int) -> tuple[Tensor | None, Tensor | None]:
        """This rank's sequences, or its part of them, as inputs and labels; a middle stage needs neither.

        A token below 0 is the complement of one that is no label: padding, or part of a prompt.
        """
        if not (self._has_first or self._has_last):
            return None, None
        count = self._training.global_batch_size // self._layout.data_parallel_size
        tokens = self._tokens(step, count).to(self._device, non_blocking=True)
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        inputs = torch.where(inputs < 0, ~inputs, inputs)
        labels = labels.masked_fill(labels < 0, IGNORED)
        if self._context is None:
            return inputs, labels
        return self._context.own(inputs), self._context.own(labels)

    @property
    def num_steps(self) -> int:
        """Steps taken so far."""
        return len(self._norms)

    def losses(self) -> list[float]:
        """Mean loss over valid tokens of every step so far, over all ranks (all must call)."""
        losses = torch.stack(self._losses).double()
        if not self._has_last or self.mesh.index("tp") > 0:
            losses.zero_()  # tensor-parallel ranks compute the same loss; other stages have none
        losses = self.mesh.sum_over_ranks(losses)
        return (losses / self._layout.gradient_ranks).tolist()

    def first_bad_loss(self) -> int | None:
        """First step whose loss was not finite on this rank, before any sum over ranks."""
        bad = torch.stack(self._losses).isfinite().logical_not()
        return int(bad.int().argmax()) if bad.any() else None

    def gradient_norms(self) -> list[float]:
        """Global gradient norm before clipping, of every step so far."""
        return torch.stack(self._norms).tolist()

    def _tokens(self, step: int, count: int) -> Tensor:
        """This rank's ``count`` sequences of a step, in host memory."""
        first = self.mesh.data_parallel_index * count
        return torch.from_numpy(self._corpus.batch(step, first, count))


class _MicroBatchLoop:
    """Forward and backward of one micro-batch after the other."""

    def __init__(self, model: RankModel, layout: LayoutSpec) -> None:
        (self._module,) = model.modules
        self._token_loss_sum = model.token_loss_sum
        self._experts = model.experts
        self._micro_batch_size = layout.micro_batch_size
        self._sync = GradientSync(self._module, layout)

    def run(self, inputs: Tensor, labels: Tensor, scale: float) -> Tensor:
        """The scaled loss, summed over micro-batches."""
        input_parts = inputs.split(self._micro_batch_size)
        label_parts = labels.split(self._micro_batch_size)
        total = torch.zeros((), device=inputs.device)
        last = len(input_parts) - 1
        for index, (part, part_labels) in enumerate(zip(input_parts, label_parts, strict=True)):
            with self._sync.of_micro_batch(is_last=index == last):
                loss = self._token_loss_sum(self._module(part), part_labels, scale=scale)
                self._with_auxiliary(loss, len(input_parts)).backward()
            total += loss.detach()
        return total

    def _with_auxiliary(self, loss: Tensor, num_micro_batches: int) -> Tensor:
        """What is differentiated: the loss, and what routers of experts add to it."""
        if self._experts is None:
            return loss
        auxiliary = self._experts.auxiliary_loss(num_micro_batches)
        return loss if auxiliary is None else loss + auxiliary


class _Pipeline:
    """Forward and backward of all micro-batches in a pipeline schedule's order."""

    def __init__(
        self, model: RankModel, mesh: RankMesh, training: TrainingSpec, device: torch.device
    ) -> None:
        from meshfit.run.pipeline.schedule import build_schedule  # noqa: PLC0415

        self._schedule = build_schedule(model, mesh, training, device)
        self._has_first = model.stages[0].is_first
        self._has_last = model.stages[-1].is_last
        self._device = device

    def run(self, inputs: Tensor | None, labels: Tensor | None, scale: float) -> Tensor:
        """The scaled loss, summed over micro-batches; 0 where the last stage is elsewhere."""
        losses: list[Tensor] = []
        arguments = (inputs,) if self._has_first else ()
        options = {"target": labels, "losses": losses} if self._has_last else {}
        try:
            self._schedule.step(
                *arguments, **options, return_outputs=False, loss_kwargs={"scale": scale}
            )
        except RuntimeError as error:
            if error.__cause__ is not None:  # the pipeline words its own error over the real one
                raise error.__cause__ from None
            raise
        if not losses:
            return torch.zeros((), device=self._device)
        return torch.stack([loss.detach() for loss in losses]).sum()


def _build_runner(
    model: RankModel, mesh: RankMesh, training: TrainingSpec, device: torch.device
) -> _MicroBatchLoop | _Pipeline:
    if mesh.layout.pp > 1:
        return _Pipeline(model, mesh, training, device)
    return _MicroBatchLoop(model, mesh.layout)


def _build_partial_gradients(parameters: Sequence[torch.nn.Parameter], mesh: RankMesh) -> Any:
    """FSDP2's hooks finish partial gradients themselves; tensor parallelism alone does not."""
    if mesh.layout.tp == 1 or mesh.layout.gradient_ranks > 1:
        return None
    from meshfit.run.tensor.sharding import PartialGradients  # noqa: PLC0415

    return PartialGradients(list(parameters), mesh.axis("tp"))


def _targets(corpus: Corpus, step: int) -> int:
    """Tokens of a step that count.

    Raises:
        InputError: there are none.
    """
    count = corpus.valid_tokens(step)
    if count == 0:
        raise InputError(
            f"no token of global batch {step} is a target: its sequences lie inside of prompts; take "
            f"longer sequences, a larger global batch, or shorter prompts"
        )
    return count


def check_batch(layout: LayoutSpec, training: TrainingSpec) -> None:
    """
    Raises:
        InputError: the global batch is no whole number of micro-batches on every rank.
    """
    per_step = layout.data_parallel_size * layout.micro_batch_size
    if training.global_batch_size % per_step:
        raise InputError(
            f"global_batch_size={training.global_batch_size} is not a multiple of data-parallel "
            f"ranks x micro_batch_size = {layout.data_parallel_size} x {layout.micro_batch_size}"
        )
