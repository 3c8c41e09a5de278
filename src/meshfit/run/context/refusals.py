"""What context parallelism does not run, and what would."""

from collections.abc import Iterator, Mapping
from typing import Any

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.run.context.sharding import head_ranks, shards_of

METHODS: tuple[str, ...] = ("ring", "all_gather", "all_to_all", "hierarchical")
MASKED_METHODS: tuple[str, ...] = ("all_gather", "all_to_all")
"""Those that hide more than what comes later: a window, packed documents."""


def refusals(config: Mapping[str, Any], layout: LayoutSpec) -> Iterator[tuple[str, str]]:
    """Key of a layout -> why its value does not run with the model of a raw config."""
    if layout.cp == 1:
        return
    method = layout.cp_method or "ring"
    if method not in METHODS:
        yield "cp_method", f"{method!r} is not one of {', '.join(METHODS)}"
        return
    if method == "hierarchical" and not _is_inner(layout):
        yield (
            "cp_inner",
            (
                f"{layout.cp_inner} is no divisor of cp={layout.cp} between 1 and cp, as "
                f"cp_method=hierarchical needs; use {_inner_text(layout.cp)}"
            ),
        )
        return
    if method != "hierarchical" and layout.cp_inner != 1:
        yield "cp_inner", f"{layout.cp_inner} is for cp_method=hierarchical; leave it out"
        return
    yield from _head_refusals(config, layout)


def _is_inner(layout: LayoutSpec) -> bool:
    return 1 < layout.cp_inner < layout.cp and layout.cp % layout.cp_inner == 0


def _inner_text(cp: int) -> str:
    divisors = [str(n) for n in range(2, cp) if cp % n == 0]
    return " or ".join(divisors) or "cp_method=ring"


def _head_refusals(config: Mapping[str, Any], layout: LayoutSpec) -> Iterator[tuple[str, str]]:
    ranks = head_ranks(layout)
    queries = config.get("num_attention_heads") or config.get("n_head") or 1
    keys = config.get("num_key_value_heads") or queries
    own_queries, own_keys = max(1, queries // layout.tp), max(1, keys // layout.tp)
    if own_queries % ranks:
        yield (
            "cp_method",
            (
                f"{ranks} ranks cannot trade {own_queries} query heads (of {queries}, over "
                f"tp={layout.tp}) in equal shares; use cp_method=ring"
            ),
        )
    elif own_keys % ranks and ranks % own_keys:
        yield (
            "cp_method",
            (
                f"{ranks} ranks and {own_keys} key heads (of {keys}, over tp={layout.tp}) do not divide "
                "one another; use cp_method=ring"
            ),
        )


def check_sequence(
    layout: LayoutSpec, sequence_length: int, sliding_window: int | None = None
) -> None:
    """
    Raises:
        InputError: the layout's context parallelism cannot cut such sequences, or its exchange takes
            no window of attention.
    """
    if layout.cp == 1:
        return
    shards_of(layout).check(sequence_length)
    own_length = sequence_length // layout.cp
    if layout.sp and own_length % layout.tp:
        raise InputError(
            f"sequence_length={sequence_length} leaves {own_length} tokens to each of cp={layout.cp} "
            f"ranks, which sequence parallelism cannot cut over tp={layout.tp}; use a multiple of "
            f"{layout.cp * layout.tp}, or sp=false"
        )
    is_windowed = sliding_window is not None and sliding_window < sequence_length
    if is_windowed and layout.cp_method not in MASKED_METHODS:
        raise InputError(
            f"a window of {sliding_window} tokens over sequences of {sequence_length} does not go "
            f"round a ring; use {' or '.join(f'cp_method={name}' for name in MASKED_METHODS)}"
        )
