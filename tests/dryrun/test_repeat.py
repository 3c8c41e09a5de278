"""A step put together from short ones is the step itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshfit.dryrun.order import slots_of
from meshfit.dryrun.repeat import Longer, NotAlikeError, repeated
from meshfit.dryrun.script import Action, Line, Operation
from meshfit.mesh.spec import make_layout

ROOT = Path(__file__).parents[2]

STEPS = [
    ("dp_shard=4", 6, 2, 0, [2, 2]),
    ("dp_replicate=2", 2, 6, 1, [2, 4]),
    ("tp=2,recompute=full", 5, 5, 0, [2, 4]),
    ("pp=2,dp_shard=2", 10, 9, 0, [2, 5]),
    ("pp=6", 24, 7, 0, [2, 5]),
    ("pp=6", 24, 7, 5, [2, 4]),
    ("pp=7,schedule=gpipe", 28, 7, 2, [2, 4]),
]
"""Layout, layers, micro-batches, rank; and what of a stage's layers and of the micro-batches is run."""


@pytest.mark.dist
@pytest.mark.heavy
@pytest.mark.parametrize(("layout", "layers", "micro_batches", "rank", "run"), STEPS)
def test_a_step_put_together_from_short_ones_is_the_step_itself(
    layout: str, layers: int, micro_batches: int, rank: int, run: list[int]
) -> None:
    arguments = [layout, str(layers), str(micro_batches), str(rank)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.dryrun.repeat_session", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["why_whole"] is None
    assert found["run"] == run
    for key, expected in found["whole"].items():
        assert found["repeated"][key] == expected, key


def operation(name: str, *, born: int = 0, freed: int = 0) -> Operation:
    return Operation(
        name=name,
        phase="forward",
        module="",
        flops=0,
        freed=((freed, "activations"),) if freed else (),
        born=((born, "activations"),) if born else (),
        messages=(),
    )


def step(*layers: int) -> list[Action]:
    """A step of one forward whose layers make blocks of these sizes."""
    lines = [
        Line(operation=operation("layer", born=size), layer=i) for i, size in enumerate(layers)
    ]
    gap = Action(direction="", stage=None, micro_batch=None, lines=())
    forward = Action(direction="F", stage=0, micro_batch=0, lines=tuple(lines))
    return [gap, forward, gap]


def test_the_piece_that_a_longer_run_has_more_is_repeated() -> None:
    short, deeper = step(1, 3), step(1, 2, 3)
    made = repeated(
        short, layers=Longer(actions=deeper, added=3), micro_batches=Longer(actions=short, added=0)
    )
    lines = made[1].lines
    assert [line.operation.born[0][0] for line in lines] == [1, 2, 2, 2, 3]
    assert [line.layer for line in lines] == [0, 1, 2, 3, 4]


def test_layers_that_are_not_alike_are_not_repeated() -> None:
    short, deeper = step(1, 3), step(2, 2, 2)
    with pytest.raises(NotAlikeError):
        repeated(
            short,
            layers=Longer(actions=deeper, added=1),
            micro_batches=Longer(actions=short, added=0),
        )


@pytest.mark.parametrize(
    ("layout", "rank", "order"),
    [
        ({}, 0, "FBFBFBFB"),
        ({"pp": 4, "schedule": "gpipe"}, 1, "FFFFBBBB"),
        ({"pp": 4}, 0, "FFFFBBBB"),
        ({"pp": 4}, 2, "FFBFBFBB"),
        ({"pp": 4}, 3, "FBFBFBFB"),
    ],
)
def test_passes_are_in_the_order_of_the_schedule(layout: dict, rank: int, order: str) -> None:
    slots = slots_of(make_layout(layout), 4, rank)
    assert "".join(slot.direction for slot in slots) == order
    for direction in "FB":
        mine = [slot.micro_batch for slot in slots if slot.direction == direction]
        assert mine == [0, 1, 2, 3]
