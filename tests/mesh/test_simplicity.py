"""Which of two layouts is the simpler one."""

import numpy as np
import pytest

from meshfit.mesh.candidates import Candidates
from meshfit.mesh.simplicity import complexities
from meshfit.mesh.spec import make_layout

SIMPLER_FIRST = [
    ({"dp_shard": 64}, {"dp_replicate": 8, "dp_shard": 8}),
    ({"dp_shard": 64, "recompute": "full"}, {"dp_shard": 32, "tp": 2}),
    ({"pp": 4, "dp_shard": 2}, {"pp": 2, "vpp": 2, "dp_shard": 4}),
    ({"pp": 2}, {"pp": 2, "stage_layers": (3, 5)}),
    ({"dp_shard": 8, "zero_stage": 2, "recompute": "full"}, {"dp_shard": 8, "zero_stage": 3}),
    ({"tp": 8}, {"tp": 8, "recompute": "selective"}),
    ({"tp": 8}, {"tp": 8, "offload": "cpu"}),
    ({"pp": 8}, {"pp": 8, "schedule": "gpipe"}),
]


@pytest.mark.parametrize(("simpler", "other"), SIMPLER_FIRST)
def test_the_simpler_one_comes_first(simpler: dict, other: dict) -> None:
    layouts = [make_layout(other), make_layout(simpler)]
    keys = complexities(Candidates.from_layouts(layouts))
    assert list(np.lexsort(tuple(reversed(keys)))) == [1, 0]


def test_what_is_recomputed_how_large_a_micro_batch_is_and_named_defaults_do_not_count() -> None:
    alike = [
        {"tp": 2, "recompute": "selective", "micro_batch_size": 4},
        {"tp": 8, "recompute": "block", "recompute_layers": 3},
        {"tp": 4, "recompute": "full", "offload": "none"},
    ]
    keys = complexities(Candidates.from_layouts([make_layout(one) for one in alike]))
    assert all(len(set(column.tolist())) == 1 for column in keys)
