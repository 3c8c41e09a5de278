"""Which rows count, and under which heading: the definitions of the tables' scorer.

What is left out is named here, each for a contradiction or a missing fact in its source.
"""

from meshfit.validate.rows import TruthRow

LAYOUT_COLUMNS: tuple[str, ...] = (
    "tp", "sp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_shard", "zero_stage", "mbs", "gbs",
    "seq_len", "recompute", "offload", "pp_schedule", "compile", "optimizer", "attn", "note",
)  # fmt: skip
MODEL_COLUMNS: tuple[str, ...] = (
    "family", "model", "arch", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads",
    "vocab", "task", "framework", "framework_ver", "gpu", "n_gpus", "precision",
)  # fmt: skip
MESH_COLUMNS: tuple[str, ...] = ("tp", "pp", "cp", "ep", "dp", "zero_stage", "dp_shard")
FITS_COLUMNS: tuple[str, ...] = ("n_layers", "hidden", "n_gpus", "tp", "pp", "dp", "mbs", "seq_len")
ORDER_COLUMNS: tuple[str, ...] = (*FITS_COLUMNS, "vocab", "gbs")

MEMORY_LEFT_OUT: frozenset[str] = frozenset(
    ("MGD-0044", "TTN-0031", "TTN-0032", "TAO-0015", "TAO-0016", "TAO-0017", "TAO-0022")
)
"""Rows whose printed memory contradicts their own source, or whose batch is not known."""
FITS_LEFT_OUT: frozenset[str] = frozenset(
    ("papers_via_repos", "litgpt", "msswift", "colossalai_gpt")
)
"""Families without measured peaks at a stated size."""
NAMED_ALLOCATED: frozenset[str] = frozenset(("vocab_parallel_paper", "nanotron"))
"""Families that do not name their metric, which is allocated memory."""

_ADAPTERS = ("lora", "qlora", "adapter")
_STOCK_METHODS = ("Baseline", "Redis", "baseline", "redis")


def configuration(row: TruthRow) -> tuple[str, ...]:
    """What repeats of one configuration share."""
    return tuple(row.text(name) for name in MODEL_COLUMNS + LAYOUT_COLUMNS)


def shelf(row: TruthRow) -> str:
    """``FAMILY/dense`` or ``FAMILY/other``."""
    return f"{row.text('family')}/{'dense' if row.text('arch') == 'dense' else 'other'}"


def memory_kind(row: TruthRow) -> str | None:
    """The kind of memory that the row prints, None where that is not known."""
    kind = row.text("mem_kind")
    if kind == "unnamed" and row.text("family") in NAMED_ALLOCATED:
        return "allocated"
    return kind if kind in ("allocated", "reserved", "device") else None


def memory_scored(row: TruthRow) -> bool:
    """Whether the row's memory counts."""
    if not _is_measured(row, "peak_mem_bytes") or memory_kind(row) is None:
        return False
    if row.id in MEMORY_LEFT_OUT or is_adapter(row) or is_other_method(row):
        return False
    if row.text("family") == "megatron_golden":
        is_current = row.text("framework_ver") == "CI dev" and row.text("stale") == "0"
        return row.text("tier") == "A" or (row.text("tier") == "C" and is_current)
    return not has_bad_layout(row)


def time_scored(row: TruthRow) -> bool:
    """Whether the row's step time counts."""
    return (
        _is_measured(row, "time_s")
        and row.text("family") != "megatron_golden"
        and not is_adapter(row)
        and not has_bad_layout(row)
        and not is_other_method(row)
    )


def fits_scored(row: TruthRow) -> bool:
    """Whether the row says something about what fits."""
    stated = all(row.text(column) for column in FITS_COLUMNS)
    return (
        stated
        and row.text("arch") == "dense"
        and not is_adapter(row)
        and not has_bad_layout(row)
        and row.text("family") not in FITS_LEFT_OUT
        and not any(words in row.text("flags") for words in ("fragmentation", "read as OOM"))
    )


def order_scored(row: TruthRow, *, wide: bool) -> bool:
    """Whether the row takes part in the order; narrow: only inside a printed group."""
    stated = all(row.text(column) for column in ORDER_COLUMNS)
    return (
        stated
        and row.text("status") == "ok"
        and row.text("family") != "megatron_golden"
        and not has_bad_layout(row)
        and (wide or bool(row.text("rank_group")))
    )


def is_adapter(row: TruthRow) -> bool:
    """Whether only adapters were trained."""
    return any(word in row.text("task").lower() for word in _ADAPTERS)


def has_bad_layout(row: TruthRow) -> bool:
    """Whether the printed degrees contradict each other or are not all there."""
    return "!= n_gpus" in row.text("flags") or "layout not stated" in row.text("flags")


def is_other_method(row: TruthRow) -> bool:
    """Of the vocabulary-parallel paper only the two methods count that stock frameworks have."""
    if row.text("family") != "vocab_parallel_paper":
        return False
    text = row.text("note") + row.text("model") + row.text("source_loc")
    return not any(word in text for word in _STOCK_METHODS)


def _is_measured(row: TruthRow, column: str) -> bool:
    return row.text("status") == "ok" and bool(row.number(column))
