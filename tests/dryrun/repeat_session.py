"""A step put together from short ones beside the whole: ``python -m tests.dryrun.repeat_session``.

Takes a layout, the layers of the model, the micro-batches of a step and a rank. Prints what was run
and, for the whole and for the repeated step, everything that a dry run says of it.
"""

import json
import sys

import torch

from meshfit.dryrun.shorten import Run
from meshfit.dryrun.step import step_of
from meshfit.dryrun.trace import Trace
from meshfit.job.layout import parse_layout_text
from meshfit.mesh.spec import make_layout
from meshfit.workload.training import PRECISIONS, TrainingSpec
from tests.run.layouts import CONFIGS, SEQUENCE_LENGTH


def described(trace: Trace) -> dict:
    peak, moment = trace.peak()
    return {
        "peak": peak.as_json(),
        "at": [moment.operation, moment.phase, moment.module, moment.layer, moment.micro_batch],
        "totals": trace.totals().tolist(),
        "operations": [[one.operation, one.module] for one in trace.moments],
        "flops": trace.flops,
        "collectives": [
            [one.kind, one.axis, one.size_bytes, one.phase, one.module] for one in trace.collectives
        ],
    }


def main() -> None:
    text, layers, micro_batches, rank = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    layout = make_layout(parse_layout_text(text))
    sequences = micro_batches * layout.micro_batch_size * layout.data_parallel_size
    run = Run(
        config=CONFIGS["llama"] | {"num_hidden_layers": layers},
        layout=layout,
        training=TrainingSpec(
            sequence_length=SEQUENCE_LENGTH,
            global_batch_size=sequences,
            precision=PRECISIONS["fp32"],
        ),
        rank=rank,
    )
    repeated, whole = step_of(run, "cpu"), step_of(run, "cpu", whole=True)
    document = {
        "why_whole": repeated.why_whole,
        "run": [repeated.layers_run, repeated.micro_batches_run],
        "repeated": described(repeated.trace),
        "whole": described(whole.trace),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
