"""Run under torchrun by ``parity``: many layouts one after another in one world.

Rank 0 first runs every reference as one process. Each case then takes the judged steps exactly as
the worker does and leaves what it found in ``CASE.json`` in the folder given as the first argument;
the second is one of ``SESSIONS``.
"""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.utils._python_dispatch import TorchDispatchMode

from meshfit.mesh.spec import AXES
from meshfit.run.experts.capacity import TokenGroups
from meshfit.run.experts.choices import (
    Choices,
    KeptChoices,
    OwnChoices,
    ReferenceChoices,
    ReplayedChoices,
)
from meshfit.run.experts.policy import ExpertPolicy
from meshfit.run.experts.replay import tokens_of_rank
from meshfit.run.experts.report import routing_report
from meshfit.run.gradients import compare_gradients, local_tensor, save_gradients
from meshfit.run.mesh import RankMesh, build_mesh
from meshfit.run.model.weights import write_initial_weights
from meshfit.run.parallelize import RankModel, build_rank_model
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import Corpus, open_corpus
from tests.run.layouts import (
    CONFIGS,
    JUDGED_STEPS,
    SEQUENCE_LENGTH,
    Case,
)
from tests.run.sessions import SESSIONS
from tests.run.traps import spring_traps

CPU = torch.device("cpu")


class MaskedCorpus:
    """A corpus in which sequence n of a batch keeps only its first n + 1 labels."""

    document_end = None

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def batch(self, step, first, count):
        tokens = self._corpus.batch(step, first, count)
        for row, sequence in enumerate(range(first, first + count)):
            tokens[row, sequence + 2 :] = ~tokens[row, sequence + 2 :]
        return tokens

    def valid_tokens(self, step):
        return sum(range(1, self._corpus.global_batch_size + 1))


class CollectiveCounter(TorchDispatchMode):
    """Counts collectives that reach a process group, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self.counts[func._opname] = self.counts.get(func._opname, 0) + 1
        return func(*args, **(kwargs or {}))


@dataclass
class Watch:
    """What must never happen on Gloo: reductions other than plain ones, coalesced collectives."""

    reductions: set[str] = field(default_factory=set)
    coalesced: int = 0

    def install(self) -> None:
        factors = _fsdp_collectives._get_gradient_divide_factors
        manager = dist.distributed_c10d._coalescing_manager

        def watched_factors(*args, **kwargs):
            result = factors(*args, **kwargs)
            self.reductions.update(str(op).rpartition(".")[2] for op in result[2:])
            return result

        def watched_manager(*args, **kwargs):
            self.coalesced += 1
            return manager(*args, **kwargs)

        _fsdp_collectives._get_gradient_divide_factors = watched_factors
        dist.distributed_c10d._coalescing_manager = watched_manager


def corpus_of(case: Case) -> Corpus | MaskedCorpus:
    training = case.training
    corpus = open_corpus(
        training.data,
        vocab_size=CONFIGS[case.model]["vocab_size"],
        sequence_length=training.sequence_length,
        global_batch_size=training.global_batch_size,
    )
    return MaskedCorpus(corpus) if case.masked else corpus


def policy_of(case: Case) -> ExpertPolicy:
    groups = case.groups and TokenGroups(sequence_length=SEQUENCE_LENGTH, **asdict(case.groups))
    return ExpertPolicy(capacity_factor=case.capacity, bias_rate=0.001, groups=groups)


def choices_of(case: Case, mesh: RankMesh, folder: Path) -> Choices:
    """Under bf16, where rounding turns choices, a reference keeps its own for others to take."""
    if case.precision == "fp32":
        return OwnChoices()
    if mesh.devices is None:
        return KeptChoices(JUDGED_STEPS)
    tokens = tokens_of_rank(mesh, case.training, context=None)
    return ReplayedChoices(ReferenceChoices(folder=folder / case.reference.name, tokens=tokens))


def run(case: Case, mesh: RankMesh, folder: Path, inspect) -> dict:
    """The judged steps of a case; ``inspect`` looks at the gradients of the first."""
    model = build_rank_model(
        CONFIGS[case.model],
        folder / "weights" / case.model,
        mesh,
        case.training.precision,
        CPU,
        adapter=case.adapter,
        policy=policy_of(case),
    )
    if model.experts is not None:
        model.experts.choices = choices_of(case, mesh, folder)
    trainer = Trainer(model, mesh, case.training, corpus_of(case), CPU)
    found: dict = {}
    for step in range(JUDGED_STEPS):
        counter = CollectiveCounter() if step == JUDGED_STEPS - 1 else nullcontext()
        with trainer.clock.step(), counter:
            trainer.accumulate_gradients(step)
            if step == 0:
                found |= inspect(model)
            trainer.update()
    if model.experts is not None:
        found["routing"] = asdict(routing_report(model.experts, mesh))
        if isinstance(model.experts.choices, KeptChoices):
            model.experts.choices.save(folder / case.name)
    found["collectives"] = counter.counts
    found["tied_copies"] = tied_copies(trainer)
    found["place"] = [mesh.index(axis) for axis in AXES if axis != "pp"]
    found["losses"] = trainer.losses()
    found["gradient_norms"] = trainer.gradient_norms()
    return found


def tied_copies(trainer: Trainer) -> list[str]:
    """A digest of each copy that this rank has of an embedding on both ends of a pipeline."""
    tied = trainer._tied_gradients
    return [
        sha256(local_tensor(copy).detach().numpy().tobytes()).hexdigest()
        for copy in (tied._copies if tied is not None else [])
    ]


def run_reference(case: Case, folder: Path) -> None:
    """The case as one process, on this rank alone."""
    ours = folder / case.name
    ours.mkdir()

    def keep(model: RankModel) -> dict:
        save_gradients(model.parameters_by_name(), ours)
        return {}

    found = run(case, RankMesh(layout=case.layout, devices=None), folder, keep)
    (ours / "result.json").write_text(json.dumps(found))


def run_case(case: Case, folder: Path) -> dict:
    mesh = build_mesh(case.layout, "cpu", case.rank_order)
    reference = folder / case.reference.name

    def compare(model: RankModel) -> dict:
        parameters = model.parameters_by_name()
        gradients = compare_gradients(parameters, mesh, reference, model.packings())
        return {
            "errors": {gradient.name: gradient.error for gradient in gradients},
            "ratios": {gradient.name: gradient.ratio for gradient in gradients},
            # DTensors of experts lie on another mesh: they cannot be added to the others.
            "norm_of_own_stages": None if model.experts else norm_of(parameters.values()),
        }

    return run(case, mesh, folder, compare)


def norm_of(parameters: Iterable[torch.nn.Parameter]) -> float:
    """The norm of the gradients that this rank's stages have, over ranks of these stages."""
    square = sum(parameter.grad.norm().square() for parameter in parameters)
    return float(square.full_tensor() if hasattr(square, "placements") else square) ** 0.5


def main() -> None:
    folder, session = Path(sys.argv[1]), SESSIONS[sys.argv[2]]
    cases = session.cases
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    assert dist.get_world_size() == session.num_ranks
    watch = Watch()
    watch.install()
    if dist.get_rank() == 0:
        for model in {case.model for case in cases}:
            write_initial_weights(CONFIGS[model], folder / "weights" / model, seed=0)
        for case in {case.reference.name: case.reference for case in cases}.values():
            run_reference(case, folder)
    dist.barrier()
    for case in cases:
        begin, found = time.perf_counter(), [None] * session.num_ranks
        dist.all_gather_object(found, run_case(case, folder))
        if dist.get_rank() == 0:
            (folder / f"{case.name}.json").write_text(json.dumps(found))
            print(f"{case.name}: {time.perf_counter() - begin:.1f} s", flush=True)
    if dist.get_rank() == 0:
        watched = {"reductions": sorted(watch.reductions), "coalesced": watch.coalesced}
        (folder / "watch.json").write_text(json.dumps(watched))
    spring_traps(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
