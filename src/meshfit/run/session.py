"""What one rank does for one request, phase by phase."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from meshfit.errors import InputError
from meshfit.measure.environment import run_environment
from meshfit.measure.resident import reset_device_peak
from meshfit.measure.timeline.chrome import chrome_trace
from meshfit.record.files import RESULT_NAME, write_json_atomically, write_result
from meshfit.record.heartbeat import FINISHED_PHASE, HeartbeatWriter
from meshfit.record.schema import ParameterGradient, RankReport, RunRequest, RunResult
from meshfit.run.faults import fault_at
from meshfit.run.gradients import compare_gradients, has_gradients, save_gradients
from meshfit.run.mesh import build_mesh
from meshfit.run.parallelize import RankModel, build_rank_model, compute_dtype
from meshfit.run.placement import require_placement
from meshfit.run.profiling import TIMELINE_NAME, profiles_of, record_steps, timeline_of
from meshfit.run.ranks import Rank, gather, join
from meshfit.run.report import report_of_rank
from meshfit.run.trainer import Trainer
from meshfit.run.weights import write_initial_weights
from meshfit.workload.corpus import Corpus, open_corpus


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
            result = (
                self._write_weights(rank) if request.purpose == "weights" else self._train(rank)
            )
            if rank.rank == 0:
                write_result(self._folder / RESULT_NAME, result)
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

    def _train(self, rank: Rank) -> RunResult:
        request = self._request
        if request.compile:
            raise InputError("compile: the runner does not compile; leave it false")
        self._heartbeat.beat("build", waiting=True)
        torch.manual_seed(request.seed)
        mesh = build_mesh(request.layout, request.device_type, request.rank_order)
        model = build_rank_model(
            request.model_config,
            Path(request.weights),
            mesh,
            request.training.precision,
            rank.device,
            adapter=request.training.adapter,
        )
        corpus = self._open_corpus(model)
        trainer = Trainer(model, mesh, request.training, corpus, rank.device)
        self._phases.end("build")

        gradients = self._run_steps(trainer, model, rank)
        losses, norms = trainer.losses(), trainer.gradient_norms()
        self._phases.end("train")
        reports = gather(
            report_of_rank(
                rank.rank, model, trainer, rank.device, track_memory=request.track_memory
            )
        )
        reports = self._profile(trainer, model, rank, reports)
        self._phases.end("end")
        return RunResult(
            losses=tuple(losses),
            gradient_norms=tuple(norms),
            useful_tokens_per_step=corpus.valid_tokens(0),
            gradients=gradients,
            ranks=tuple(reports),
            phases_s=self._phases.ended_s,
            environment=self._environment(model, corpus, rank),
            sample_ids=tuple(
                tuple(corpus.sample_ids(step).tolist()) for step in range(self._judged_steps)
            ),
        )

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
        gradients: tuple[ParameterGradient, ...] = ()
        for step in range(self._num_steps):
            self._heartbeat.beat("train", step)
            with trainer.clock.step():
                is_broken = fault_at(rank.rank, "train", step)
                self._heartbeat.beat("train", step, waiting=True)
                trainer.accumulate_gradients(step, loss_factor=math.nan if is_broken else 1.0)
                if step == 0:
                    with trainer.clock.pause():
                        gradients = self._judge_gradients(trainer, model)
                trainer.update()
            if step == 0:
                self._phases.end("first_step")
                reset_device_peak(rank.device)  # that step also held the reference's gradients
        return gradients

    def _profile(
        self, trainer: Trainer, model: RankModel, rank: Rank, reports: Sequence[RankReport]
    ) -> list[RankReport]:
        """``reports`` (on rank 0) with where the time of recorded steps went; writes the timeline."""
        request = self._request

        def before_step(step: int) -> None:
            self._heartbeat.beat("profile", step)
            fault_at(rank.rank, "profile", step)
            self._heartbeat.beat("profile", step, waiting=True)

        traces = record_steps(
            trainer, model, rank, count=request.profile_steps, before_step=before_step
        )
        timelines = gather(
            timeline_of(rank.rank, trainer, traces, self._phases.ended_s, self._num_steps)
        )
        if not timelines:
            return []
        document = chrome_trace(timelines)
        write_json_atomically(self._folder / TIMELINE_NAME, document, durable=False)
        if not request.profile_steps:
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
        head_dim = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        found = run_environment(
            rank.device,
            ranks=rank.ranks_on_host,
            dtype=compute_dtype(self._request.training.precision) or torch.float32,
            head_dim=head_dim,
        )
        ours = {
            "attention": "sdpa",
            "dropout_set_to_zero": dict(model.disabled_dropout),
            "data": corpus.describe(),
            "topology": self._request.topology,
        }
        return found | ours
