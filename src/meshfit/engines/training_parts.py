"""What of a training the files of an engine say, so that no part of a job is left out without a word."""

from collections.abc import Collection, Mapping

from meshfit.errors import InputError
from meshfit.workload.training import RuntimeSpec, TrainingSpec

ANY: None = None

Said = Mapping[str, Collection[object] | None]
"""Key of a job -> the values that an engine's files can say; ``ANY``: all."""

OF_THE_SCRIPT: Said = dict.fromkeys(
    (
        "workload.method",
        "workload.optimizer",
        "workload.learning_rate",
        "workload.weight_decay",
        "workload.max_grad_norm",
        "runtime.compile",
        "runtime.attention",
        "runtime.loss",
        "runtime.allocator",
        "runtime.attention_dropout",
        "runtime.hidden_dropout",
        "runtime.optimizer_in_backward",
        "runtime.paged_optimizer",
        "runtime.expert_capacity_factor",
    ),
    ANY,
)
"""What a training script of one's own decides where an engine's file only configures it."""

_ASSUMED = ("communication_sms", "expert_imbalance")
"""Of the runtime, what predictions assume and no engine is told."""

_WRITTEN_AS = {"bucket_bytes": "bucket"}
"""Keys of the runtime by which a job does not call them."""

_EVERYWHERE: Said = {"workload.method": ("full",)}


def training_parts(training: TrainingSpec) -> dict[str, object]:
    """Key of a job -> value: all of the workload that an engine has to be told, and what of the runtime
    is not left to it. Where tokens come from is a person's own matter in every engine."""
    default = RuntimeSpec()
    runtime = {
        f"runtime.{_WRITTEN_AS.get(key, key)}": value
        for key, value in vars(training.runtime).items()
        if value != getattr(default, key) and key not in _ASSUMED
    }
    return {
        "workload.method": training.method,
        "workload.precision": training.precision.known_as,
        "workload.optimizer": training.optimizer,
        "workload.learning_rate": training.learning_rate,
        "workload.weight_decay": training.weight_decay,
        "workload.max_grad_norm": training.max_grad_norm,
        **runtime,
    }


def require_said(engine: str, training: TrainingSpec, said: Said) -> None:
    """Does nothing where an engine's files say all of ``training``.

    Raises:
        InputError: they do not; names the first part and the values that there are.
    """
    for key, value in training_parts(training).items():
        known = said[key] if key in said else _EVERYWHERE.get(key, ())
        if known is ANY or value in known:
            continue
        instead = f"{', '.join(map(str, known))} can be" if known else "leave it out"
        raise InputError(f"{engine}: {key} {value} is not written into its files; {instead}")


def left_to_the_script(training: TrainingSpec, said: Said) -> str:
    """A line that lists what a file does not say and a training script of one's own has to do."""
    left = [
        f"{key} {value}"
        for key, value in training_parts(training).items()
        if key in OF_THE_SCRIPT and key not in said
    ]
    return f"Yours to do in the script: {', '.join(left)}."
