from pathlib import Path

import pytest

from meshfit.cli.submit import SubmitWords, runner_of
from meshfit.errors import InputError
from meshfit.funnel.submit.allocated import Allocated
from meshfit.funnel.sweep.fit import HERE


def runner(**words):
    return runner_of(SubmitWords(**words), Path("job.yaml"), rank_order=None, given_layouts=False)


def test_launches_are_done_here_unless_they_are_submitted():
    assert runner(to=None) is HERE
    assert isinstance(runner(to="allocation"), Allocated)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"to": None, "each": True}, "go with --submit"),
        ({"to": None, "max_nodes": 2}, "go with --submit"),
        ({"to": None, "options": ["partition=gpu"]}, "go with --submit"),
        ({"to": "slrum"}, "use slurm, kubernetes or allocation; try slurm"),
        ({"to": "allocation", "each": True}, "asks for nothing"),
        ({"to": "kubernetes", "options": ["imag=x"]}, "try image"),
    ],
)
def test_what_does_not_go_together_is_refused(words, why):
    with pytest.raises(InputError, match=why):
        runner(**words)
