"""The predicted step of one layout as a trace file."""

import json
from pathlib import Path

from meshfit.errors import InputError
from meshfit.funnel.space.calibrating import basis_of
from meshfit.funnel.space.estimating import why_not_modelled
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.simulate.tier2 import timeline_of
from meshfit.predict.simulate.trace import chrome_trace


def write_timeline(job: Job, layout: LayoutSpec, path: Path) -> None:
    """Write the step as Chrome trace JSON, which ui.perfetto.dev opens.

    Raises:
        InputError: the layout cannot be predicted, or the file cannot be written.
    """
    reason = why_not_modelled(job, layout)
    if reason is not None:
        raise InputError(f"no timeline of {layout.label}: {reason}")
    trace = chrome_trace(timeline_of(layout, basis_of(job)), 0)
    try:
        path.write_text(json.dumps(trace), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the timeline to {path}: {error.strerror}") from error
