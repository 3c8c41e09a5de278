"""What one rank does for one request, phase by phase."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from meshfit.errors import InputError
from meshfit.measure.environment import run_environment
from meshfit.measure.resident import reset_device_peak
from meshfit.measure.timeline.chrome import chrome_trace
from meshfit.record.files import RESULT_NAME, write_json_atomically
from meshfit.record.heartbeat import FINISHED_PHASE, HeartbeatWriter
from meshfit.record.schema import (
    ParameterGradient,
    Purpose,
    RankReport,
    ReplayedSteps,
    RunRequest,
    RunResult,
)
from meshfit.run.experts.choices import KeptChoices, ReferenceChoices, ReplayedChoices
from meshfit.run.experts.replay import (
    differing_tokens,
    keep_choices,
    policy_of,
    tokens_of_rank,
)
from meshfit.run.experts.report import routing_report
from meshfit.run.faults import fault_at
from meshfit.run.gradients import compare_gradients, has_gradients, save_gradients
from meshfit.run.mesh import RankMesh, build_mesh
from meshfit.run.model.transformer import head_dim_of
from meshfit.run.model.weights import write_initial_weights
from meshfit.run.parallelize import RankModel, build_rank_model, compute_dtype
from meshfit.run.placement import require_placement
from meshfit.run.profiling import TIMELINE_NAME, profiles_of, record_steps, timeline_of
from meshfit.run.ranks import Rank, gather, join
from meshfit.run.report import report_of_rank
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import Corpus, open_corpus

Judge = Callable[[], None]


@dataclass
class Phases:
    """Seconds from the start of the process to the end of each phase."""

    ended_s: dict[str, float] = field(default_factory=dict)

    def end(self, phase: str) -> None:
        self.ended_s[phase] = time.time() - psutil.Process().create_time()


class Session:
    """Runs a request on this rank and writes what came of it."""

    def __init__(self, request: RunRequest, folder: Path, heartbeat: HeartbeatWriter) -> None:
        self._request = request
        self._folder = folder
        self._heartbeat = heartbeat
        self._phases = Phases()
        self._phases.end("import")
        self._purposes: dict[Purpose, Callable[[Rank], RunResult]] = {
            "weights": self._write_weights,
            "reference": self._train,
            "parity": self._train,
            "measure": self._train,
            "train": self._train_on,
            "parts": self._measure_parts,
        }

    def run(self) -> None:
        """Everything the request's purpose asks for.

        Raises:
            InputError: the request asks for what the runner cannot do.
        """
        request = self._request
        torch.set_num_threads(request.threads_per_rank)
        self._heartbeat.beat("init", waiting=True)
        with join(request.device_type, request.collective_timeout_s) as rank:
            require_placement(request.hosts)
            self._phases.end("init")
            result = self._purposes[request.purpose](rank)
            if rank.rank == 0:
                write_json_atomically(self._folder / RESULT_NAME, result)
            self._heartbeat.beat(FINISHED_PHASE)

    def _write_weights(self, rank: Rank) -> RunResult:
        self._heartbeat.beat("build")
        if rank.rank == 0:
            request = self._request
            write_initial_weights(request.model_config, Path(request.weights), request.seed)
        self._phases.end("end")
        return RunResult(
            losses=(),
            gradient_norms=(),
            useful_tokens_per_step=0,
            ranks=(),
            phases_s=self._phases.ended_s,
        )

    def _prepare(self, rank: Rank) -> tuple[Trainer, RankModel, Corpus]:
        request = self._request
        if request.compile:
            raise InputError("compile: the runner does not compile; leave it false")
        self._heartbeat.beat("build", waiting=True)
        torch.manual_seed(request.seed)
        mesh = build_mesh(request.layout, request.device_type, request.rank_order)
        model = self._build_model(mesh, rank)
        corpus = self._open_corpus(model)
        return Trainer(model, mesh, request.training, corpus, rank.device), model, corpus

    def _train_on(self, rank: Rank) -> RunResult:
        """Steps with checkpoints between them, compared with nothing."""
        from meshfit.run.checkpoint.running import RunCheckpoints  # noqa: PLC0415

        trainer, model, corpus = self._prepare(rank)
        checkpoints = RunCheckpoints(self._request, model, trainer, corpus)
        steps = range(checkpoints.first_step, self._request.steps)
        self._phases.end("build")
        for step in steps:
            self._step(trainer, rank, step)
            if step == steps.start:
                self._phases.end("first_step")
            if checkpoints.is_due(step + 1):
                self._heartbeat.beat("save", step, waiting=True)
                checkpoints.save(step + 1)
        saved = checkpoints.close()
        losses, norms = trainer.losses(), trainer.gradient_norms()
        self._phases.end("train")
        reports = gather(report_of_rank(rank.rank, model, trainer, rank.device, track_memory=False))
        loads_s = gather(checkpoints.load_s)
        self._phases.end("end")
        return RunResult(
            losses=tuple(losses),
            gradient_norms=tuple(norms),
            useful_tokens_per_step=corpus.valid_tokens(steps.start),
            ranks=tuple(reports),
            phases_s=self._phases.ended_s,
            environment=self._environment(model, corpus, rank),
            sample_ids=tuple(tuple(corpus.sample_ids(step).tolist()) for step in steps),
            first_step=steps.start,
            load_s=max((seconds for seconds in loads_s if seconds is not None), default=None),
            checkpoints=saved,
        )

    def _measure_parts(self, rank: Rank) -> RunResult:
        from meshfit.run.parts import measure_parts  # noqa: PLC0415

        request = self._request
        self._heartbeat.beat("build")
        write_initial_weights(request.model_config, Path(request.weights), request.seed)
        trainer, model, corpus = self._prepare(rank)
        self._phases.end("build")

        def passes() -> Iterator[int]:
            for step in range(request.steps):
                self._heartbeat.beat("train", step)
                yield step

        parts = measure_parts(model, trainer, rank.device, passes())
        self._phases.end("end")
        return RunResult(
            losses=(),
            gradient_norms=(),
            useful_tokens_per_step=corpus.valid_tokens(0),
            ranks=(),
            phases_s=self._phases.ended_s,
            environment=self._environment(model, corpus, rank),
            parts=parts,
        )

    def _step(self, trainer: Trainer, rank: Rank, step: int, judge: Judge | None = None) -> None:
        """One optimizer step; ``judge`` looks at its gradients before they are used, off the clock."""
        self._heartbeat.beat("train", step)
        with trainer.clock.step():
            is_broken = fault_at(rank.rank, "train", step)
            self._heartbeat.beat("train", step, waiting=True)
            trainer.accumulate_gradients(step, loss_factor=math.nan if is_broken else 1.0)
            if judge is not None:
                with trainer.clock.pause():
                    judge()
            trainer.update()

    def _train(self, rank: Rank) -> RunResult:
        request = self._request
        trainer, model, corpus = self._prepare(rank)
        mesh = trainer.mesh
        kept = keep_choices(request, model.experts)
        self._phases.end("build")

        gradients = self._run_steps(trainer, model, rank)
        losses, norms = trainer.losses(), trainer.gradient_norms()
        routing = routing_report(model.experts, mesh) if model.experts else None
        self._phases.end("train")
        reports = gather(
            report_of_rank(
                rank.rank, model, trainer, rank.device, track_memory=request.track_memory
            )
        )
        reports = self._profile(trainer, model, rank, reports)
        environment = self._environment(model, corpus, rank)
        replayed = None
        if kept is not None:
            replayed, gradients = self._settle_choices(kept, trainer, model, rank, gradients)
        self._phases.end("end")
        return RunResult(
            losses=tuple(losses),
            gradient_norms=tuple(norms),
            useful_tokens_per_step=corpus.valid_tokens(0),
            gradients=gradients,
            ranks=tuple(reports),
            phases_s=self._phases.ended_s,
            environment=environment,
            sample_ids=tuple(
                tuple(corpus.sample_ids(step).tolist()) for step in range(self._judged_steps)
            ),
            routing=routing,
            replayed=replayed,
        )

    def _build_model(self, mesh: RankMesh, rank: Rank) -> RankModel:
        request = self._request
        return build_rank_model(
            request.model_config,
            Path(request.weights),
            mesh,
            request.training.precision,
            rank.device,
            adapter=request.training.adapter,
            policy=policy_of(request),
        )

    def _settle_choices(
        self,
        kept: KeptChoices,
        trainer: Trainer,
        model: RankModel,
        rank: Rank,
        gradients: tuple[ParameterGradient, ...],
    ) -> tuple[ReplayedSteps | None, tuple[ParameterGradient, ...]]:
        """Leave a reference's router choices. Of a layout that chose otherwise, the judged steps anew
        with the reference's, and their gradients; else ``gradients`` as they are."""
        request, mesh = self._request, trainer.mesh
        if request.purpose == "reference":
            kept.save(self._folder)
            return None, gradients
        assert request.reference is not None, "choices are kept to be compared with a reference"
        context = model.stages[0].context_parallel
        reference = ReferenceChoices(
            folder=Path(request.reference), tokens=tokens_of_rank(mesh, request.training, context)
        )
        differing = differing_tokens(kept, reference, mesh, rank.device)
        if not differing:
            return None, gradients
        self._heartbeat.beat("replay", waiting=True)
        again = self._build_model(mesh, rank)
        assert again.experts is not None, "choices are those of experts"
        again.experts.choices = ReplayedChoices(reference)
        replay = Trainer(again, mesh, request.training, self._open_corpus(again), rank.device)
        for step in range(self._judged_steps):
            replay.accumulate_gradients(step)
            if step == 0:
                gradients = self._judge_gradients(replay, again)
            replay.update()
        steps = ReplayedSteps(
            losses=tuple(replay.losses()),
            gradient_norms=tuple(replay.gradient_norms()),
            differing_tokens=differing,
            auxiliary_loss=routing_report(again.experts, mesh).auxiliary_loss,
        )
        return steps, gradients

    @property
    def _num_steps(self) -> int:
        request = self._request
        return self._judged_steps if request.purpose == "parity" else request.steps

    @property
    def _judged_steps(self) -> int:
        return min(self._request.judged_steps, self._request.steps)

    def _open_corpus(self, model: RankModel) -> Corpus:
        training = self._request.training
        return open_corpus(
            training.data,
            vocab_size=model.stages[0].model.config.vocab_size,
            sequence_length=training.sequence_length,
            global_batch_size=training.global_batch_size,
        )

    def _run_steps(
        self, trainer: Trainer, model: RankModel, rank: Rank
    ) -> tuple[ParameterGradient, ...]:
        """All steps; what came of the first one's gradients."""
        gradients: list[ParameterGradient] = []

        def judge() -> None:
            gradients.extend(self._judge_gradients(trainer, model))

        for step in range(self._num_steps):
            self._step(trainer, rank, step, judge if step == 0 else None)
            if step == 0:
                self._phases.end("first_step")
                reset_device_peak(rank.device)  # that step also held the reference's gradients
        return tuple(gradients)

    def _profile(
        self, trainer: Trainer, model: RankModel, rank: Rank, reports: Sequence[RankReport]
    ) -> list[RankReport]:
        """``reports`` (on rank 0) with where the time of recorded steps went; writes the timeline.

        Inside a compiled graph the recorder sees nothing, so then no step is recorded.
        """
        request = self._request
        count = 0 if request.compile else request.profile_steps

        def before_step(step: int) -> None:
            self._heartbeat.beat("profile", step)
            fault_at(rank.rank, "profile", step)
            self._heartbeat.beat("profile", step, waiting=True)

        traces = record_steps(trainer, model, rank, count=count, before_step=before_step)
        timelines = gather(
            timeline_of(rank.rank, trainer, traces, self._phases.ended_s, self._num_steps)
        )
        if not timelines:
            return []
        document = chrome_trace(timelines)
        write_json_atomically(self._folder / TIMELINE_NAME, document, durable=False)
        if count == 0:
            return list(reports)
        found = profiles_of(timelines, request.layout)
        return [
            replace(report, profile=profile) for report, profile in zip(reports, found, strict=True)
        ]

    def _judge_gradients(self, trainer: Trainer, model: RankModel) -> tuple[ParameterGradient, ...]:
        """Keep the first gradients of a reference of one process; compare anyone else's with it."""
        request = self._request
        parameters = model.parameters_by_name()
        if request.purpose == "reference" and request.layout.world_size == 1:
            save_gradients(parameters, self._folder)
        if request.reference is None or not has_gradients(Path(request.reference)):
            return ()
        return compare_gradients(
            parameters, trainer.mesh, Path(request.reference), model.packings()
        )

    def _environment(self, model: RankModel, corpus: Corpus, rank: Rank) -> dict[str, Any]:
        config = model.stages[0].model.config
        found = run_environment(
            rank.device,
            ranks=rank.ranks_on_host,
            dtype=compute_dtype(self._request.training.precision) or torch.float32,
            head_dim=head_dim_of(config),
        )
        ours = {
            "attention": "sdpa",
            "dropout_set_to_zero": dict(model.disabled_dropout),
            "data": corpus.describe(),
            "topology": self._request.topology,
        }
        return found | ours
