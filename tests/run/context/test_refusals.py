"""What context parallelism cannot run is refused with its values and with what can run."""

from typing import Any

import pytest

from meshfit.errors import InputError
from meshfit.mesh.spec import make_layout
from meshfit.run.context.refusals import check_sequence, refusals

CONFIG = {"num_attention_heads": 12, "num_key_value_heads": 4}


def of(keys: dict[str, Any], config: dict[str, Any] = CONFIG) -> dict[str, str]:
    return dict(refusals(config, make_layout(keys)))


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"cp_method": "all_to_all"},
        {"cp": 7},
        {"cp": 8, "cp_method": "all_gather"},
        {"cp": 4, "cp_method": "all_to_all"},
        {"cp": 12, "cp_method": "all_to_all"},
        {"cp": 3, "cp_method": "all_to_all", "tp": 4},
        {"cp": 8, "cp_method": "hierarchical", "cp_inner": 2},
    ],
)
def test_what_runs_is_not_refused(keys: dict[str, Any]) -> None:
    assert of(keys) == {}


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"cp": 8, "cp_method": "all_to_all"}, "cp_method", "8 ranks cannot trade 12 query heads"),
        (
            {"cp": 4, "tp": 2, "cp_method": "all_to_all"},
            "cp_method",
            "6 query heads (of 12, over tp=2)",
        ),
        ({"cp": 6, "cp_method": "all_to_all"}, "cp_method", "6 ranks and 4 key heads"),
        ({"cp": 8, "cp_method": "hierarchical"}, "cp_inner", "use 2 or 4"),
        (
            {"cp": 8, "cp_method": "hierarchical", "cp_inner": 3},
            "cp_inner",
            "3 is no divisor of cp=8",
        ),
        ({"cp": 2, "cp_method": "hierarchical", "cp_inner": 2}, "cp_inner", "use cp_method=ring"),
        ({"cp": 4, "cp_inner": 2}, "cp_inner", "2 is for cp_method=hierarchical"),
        ({"cp": 4, "cp_method": "tree"}, "cp_method", "'tree' is not one of ring, all_gather"),
    ],
)
def test_what_does_not_run_is_refused_with_a_reason(
    keys: dict[str, Any], key: str, message: str
) -> None:
    assert message in of(keys)[key]


@pytest.mark.parametrize(
    ("keys", "sequence_length", "window"),
    [
        ({"cp": 1}, 3, 2),
        ({"cp": 4}, 8, None),
        ({"cp": 4}, 8, 8),
        ({"cp": 4, "cp_method": "all_gather"}, 8, 3),
        ({"cp": 4, "cp_method": "all_to_all"}, 4, 3),
        ({"cp": 2, "tp": 2}, 8, None),
        ({"cp": 2, "tp": 4, "sp": False}, 4, None),
    ],
)
def test_sequences_that_can_be_cut_are_taken(
    keys: dict[str, Any], sequence_length: int, window: int | None
) -> None:
    check_sequence(make_layout(keys), sequence_length, window)


@pytest.mark.parametrize(
    ("keys", "sequence_length", "window", "message"),
    [
        ({"cp": 4}, 12, None, "8 or 16 can"),
        ({"cp": 2, "tp": 4}, 12, None, "use a multiple of 8"),
        ({"cp": 4}, 16, 8, "a window of 8 tokens over sequences of 16"),
        ({"cp": 4, "cp_method": "hierarchical", "cp_inner": 2}, 16, 8, "use cp_method=all_gather"),
    ],
)
def test_sequences_that_cannot_be_cut_are_refused(
    keys: dict[str, Any], sequence_length: int, window: int | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_sequence(make_layout(keys), sequence_length, window)
