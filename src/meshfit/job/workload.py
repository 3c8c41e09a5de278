"""What a job trains: its batch, sequences, documents and data."""

from pathlib import Path

from meshfit.errors import InputError
from meshfit.job.schema import AssumeFile, JobFile
from meshfit.job.training import (
    adapter_of,
    assumptions_of,
    documents_of,
    precision_of,
    runtime_of,
    with_expert_imbalance,
)
from meshfit.units import format_percent, parse_count
from meshfit.workload.documents import DocumentSpec, useful_share
from meshfit.workload.training import DataSpec, TrainingSpec

HIGHEST_JUDGED_LEARNING_RATE = 1e-3
"""Loss parity is judged at a small rate: rounding grows with the size of the steps."""

MOST_SEQUENCES = 2**31 - 1
"""Of one optimizer step: beyond it, products of counts would not fit the integers of the rules."""


def training_of(job: JobFile, assume: AssumeFile, base: Path, notes: list[str]) -> TrainingSpec:
    """What ``job`` trains; what a person should know of how it was read is added to ``notes``.

    Raises:
        InputError: a batch that is no whole number of sequences, data without a path, or a learning
            rate at which parity cannot be judged.
    """
    file = job.workload
    if file.learning_rate > HIGHEST_JUDGED_LEARNING_RATE:
        raise InputError(
            f"workload.learning_rate {file.learning_rate:g} is above "
            f"{HIGHEST_JUDGED_LEARNING_RATE:g}: rounding grows with larger steps, so loss parity "
            f"could not be judged; a layout's speed and memory do not depend on it"
        )
    data = file.data
    path = data.path
    documents = documents_of(file.lengths, file.documents, base)
    if file.documents == "padded":
        notes.append(_padding(documents, file.sequence_length))
    if data.source != "synthetic" and path is None:
        raise InputError(
            f"workload.data.path is missing: source {data.source} needs a file, folder or glob"
        )
    if path is not None and not path.startswith(("$", "~", "/")):
        path = str(base / path)
    return TrainingSpec(
        sequence_length=file.sequence_length,
        global_batch_size=_global_batch(file.global_batch, file.sequence_length, notes),
        precision=precision_of(file.precision),
        optimizer=file.optimizer,
        learning_rate=file.learning_rate,
        weight_decay=file.weight_decay,
        max_grad_norm=file.max_grad_norm,
        data=DataSpec(source=data.source, path=path, seed=data.seed),
        adapter=adapter_of(file.method),
        runtime=with_expert_imbalance(runtime_of(job.runtime, file.precision), assume),
        documents=documents,
        assume=assumptions_of(assume),
    )


def _padding(documents: DocumentSpec | None, sequence_length: int) -> str:
    """What a person must know of padded documents."""
    computed = (
        f"documents are padded: memory and time are those of {sequence_length} tokens a sequence, "
        f"whatever the documents' own lengths"
    )
    if documents is None:
        return f"{computed}; with workload.lengths, the share that pads is told"
    share = 1 - useful_share(documents, sequence_length)
    return f"{computed}; {format_percent(share)} of all tokens pad"


def _global_batch(value: str | int, sequence_length: int, notes: list[str]) -> int:
    """Sequences of one optimizer step."""
    sequences = _sequences(value, sequence_length, notes)
    if sequences > MOST_SEQUENCES:
        raise InputError(
            f"workload.global_batch {value!r} is {sequences:,} sequences a step; it takes at most "
            f"{MOST_SEQUENCES:,}"
        )
    return sequences


def _sequences(value: str | int, sequence_length: int, notes: list[str]) -> int:
    """Sequences of one optimizer step, from ``128 sequences``, ``4M tokens`` or a bare number.

    Token counts of the field are often binary (4M for 4,194,304): when the decimal reading is not
    a whole number of sequences but the binary one is, the binary one is meant, and noted.
    """
    text = str(value).strip()
    number_text, _, unit = text.partition(" ")
    unit = unit.strip().lower()
    if unit not in ("", "sequence", "sequences", "tokens", "token"):
        raise InputError(
            f"workload.global_batch {text!r}: write it like '128 sequences' or '4M tokens'"
        )
    count = parse_count(number_text, "workload.global_batch")
    if count <= 0:
        raise InputError(f"workload.global_batch {text!r} must be greater than 0")
    if not unit.startswith("token"):
        return count
    if count % sequence_length == 0:
        return count // sequence_length
    binary = _binary_count(number_text)
    if binary is not None and binary % sequence_length == 0:
        sequences = binary // sequence_length
        notes.append(
            f"global_batch {text} is read as {binary:,} tokens: {sequences} sequences of "
            f"{sequence_length}"
        )
        return sequences
    below = count // sequence_length
    nearest = " or ".join(str(n * sequence_length) for n in (below, below + 1) if n > 0)
    raise InputError(
        f"workload.global_batch {text}: {count} tokens are not a whole number of sequences of "
        f"{sequence_length}; nearest {nearest} tokens"
    )


def _binary_count(text: str) -> int | None:
    """``4M`` as 4 x 2^20; None without a K, M, B or T."""
    power = {"K": 10, "M": 20, "B": 30, "T": 40}.get(text[-1:].upper())
    if power is None:
        return None
    count = float(text[:-1]) * 2**power
    return int(count) if count == int(count) else None
