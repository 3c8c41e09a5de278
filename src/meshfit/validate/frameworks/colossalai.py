"""ColossalAI's Gemini: states in chunks over the ranks of data parallelism, and in host memory as a
policy says; its GPT benchmark checkpoints every layer."""

from dataclasses import replace

from meshfit.mesh.candidates import Candidates
from meshfit.predict.estimate import estimate
from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import GEMINI
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow

LENGTH = 1024
"""Of the benchmark's sequences (``examples/language/gpt/gemini``, from memory)."""


def read(row: TruthRow) -> RowJob:
    """The job of a row. Policy ``cuda`` keeps states on the device, ``cpu`` on the host; one that
    decides as it runs (``auto``, ``const``) uses the host where the device does not hold them.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    job = assemble(row.completed({"seq_len": str(LENGTH)}), _CONVENTIONS)
    policy = row.text("offload").removeprefix("gemini policy ")
    on_device = replace(job, layout=replace(job.layout, offload=None))
    if policy == "cuda" or (policy in ("auto", "const") and _fits(on_device)):
        return on_device
    return replace(job, layout=replace(job.layout, offload="cpu"))


def _fits(job: RowJob) -> bool:
    layouts = Candidates.from_layouts([job.layout])
    found = estimate(job.model, job.training, job.topology, layouts, job.profile)
    return bool(found.memory_middle_bytes[0] <= job.topology.accelerator.memory_bytes)


_CONVENTIONS = Conventions(
    profile=GEMINI, defaults=Defaults(recompute="full", zero_stage=3), gradient_bytes=2
)
