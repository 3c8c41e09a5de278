"""What cells of a table of training measurements may hold, so that nothing impossible is scored."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from meshfit.errors import InputError

MOST_SHOWN = 3
"""Of what is wrong in a file, how much one message names."""

_MOST = 2**31 - 1
_SIZES = (
    "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab", "vocab_padded", "head_dim",
    "max_positions", "gpus_per_node", "n_gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp",
    "dp_shard", "mbs", "gbs", "grad_accum", "seq_len", "microbatch_group", "dist_opt_instances",
)  # fmt: skip
_MEASURED = (
    "step_time_s", "time_s", "tokens_s_gpu", "tflops_gpu", "mfu_pct", "peak_mem_bytes",
    "capacity_bytes",
)  # fmt: skip

WHOLE: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(_SIZES, (1, _MOST)),
    "n_layers": (1, 100_000),
    "first_stage_layers": (0, 100_000),
    "last_stage_layers": (0, 100_000),
    "zero_stage": (0, 3),
}
"""Column -> least and greatest whole number."""


def require_possible(rows: Iterable[Mapping[str, str | None]], source: str) -> None:
    """Refuses numbers that no training run could print, and ids that do not tell rows apart.

    Empty cells and words are no numbers; they mean "not stated".

    Raises:
        InputError: all that is wrong, the first ``MOST_SHOWN`` by row and column.
    """
    rows = list(rows)
    if not rows:
        raise InputError(f"{source} holds no rows")
    wrong = [*_ids(rows), *(each for row in rows for each in _impossible(row))]
    if wrong:
        shown = "\n".join(f"  {each}" for each in wrong[:MOST_SHOWN])
        rest = f"\n  and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
        raise InputError(f"{source} holds what cannot be:\n{shown}{rest}")


def _ids(rows: Iterable[Mapping[str, str | None]]) -> Iterator[str]:
    for name, count in Counter(row["id"] or "" for row in rows).items():
        if not name:
            yield "rows without an id; give each one of its own"
        elif count > 1:
            yield f"row {name}: {count} rows have this id; give each one of its own"


def _impossible(row: Mapping[str, str | None]) -> Iterator[str]:
    for column, (least, most) in WHOLE.items():
        for name in (column, f"fill_{column}"):
            value = _number(row.get(name))
            if value is not None and not (least <= value <= most and value == round(value)):
                yield (
                    f"row {row['id']}: {name} is {row[name]}; a whole number from {least} to {most}"
                )
    for column in _MEASURED:
        value = _number(row.get(column))
        if value is not None and not (math.isfinite(value) and value > 0):
            yield f"row {row['id']}: {column} is {row[column]}; a finite number above 0"
    for column in ("attn_dropout", "hidden_dropout"):
        value = _number(row.get(column))
        if value is not None and not 0 <= value < 1:
            yield f"row {row['id']}: {column} is {row[column]}; at least 0 and below 1"


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
