"""Make the rows that ``make test`` validates on: a spread over every family, small enough to keep.

    python tools/validation_subset.py TRAINING.csv tests/validate/data/training_subset.csv

Every row that ran out of memory and counts, a few whole groups for the order, a row of every
framework, and evenly spaced rows of each family by each kind of score, of those that are modelled. The columns are those of the schema that are read.
"""

import csv
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from meshfit.validate.architecture import MODEL_COLUMNS
from meshfit.validate.frameworks import read_job
from meshfit.validate.rows import REQUIRED_COLUMNS, NotModelledError, TruthRow, read_rows
from meshfit.validate.scored import fits_scored, memory_scored, shelf, time_scored

OF_EACH = 6
"""Rows a family and score."""
OF_A_FAMILY = {"megatron_golden": 16}
"""Where one is of many different features."""
WHOLE_GROUPS = ("internevo-7b-8g", "bs-1b3-v100-32-none", "tt-405b-schedule", "korthikanti-22B")
READ_BESIDE = (
    "grad_dtype", "grad_accum_fusion", "ce_fusion", "dist_opt_instances", "overlap_grad_reduce",
    "overlap_param_gather", "first_stage_layers", "last_stage_layers",
    "embedding_counts_as_layer", "loss_counts_as_layer", "microbatch_group", "fp8_param_gather",
    "expandable_segments", "engine_args",
)  # fmt: skip


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    chosen = sorted(_chosen(read_rows(source)), key=lambda row: row.id)
    columns = list(dict.fromkeys((*REQUIRED_COLUMNS, *MODEL_COLUMNS, *READ_BESIDE)))
    columns = [name for name in columns if name in chosen[0].columns]
    with target.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(row.columns for row in chosen)
    print(f"{len(chosen)} rows -> {target}")


def _chosen(rows: list[TruthRow]) -> Iterable[TruthRow]:
    kept = {row.id: row for row in rows if row.text("status") == "oom" and fits_scored(row)}
    kept |= {row.id: row for row in rows if row.text("rank_group") in WHOLE_GROUPS}
    for is_scored in (memory_scored, time_scored):
        for name in sorted({shelf(row) for row in rows}):
            kept |= {row.id: row for row in _spread(rows, name, is_scored)}
    kept |= {row.id: row for row in {row.text("framework"): row for row in rows}.values()}
    return kept.values()


def _spread(
    rows: list[TruthRow], name: str, is_scored: Callable[[TruthRow], bool]
) -> list[TruthRow]:
    """``OF_EACH`` evenly spaced rows of one shelf."""
    found = [row for row in rows if shelf(row) == name and is_scored(row) and _is_read(row)]
    count = min(OF_A_FAMILY.get(name.split("/", maxsplit=1)[0], OF_EACH), len(found))
    return [found[index * len(found) // count] for index in range(count)]


def _is_read(row: TruthRow) -> bool:
    try:
        read_job(row)
    except NotModelledError:
        return False
    return True


if __name__ == "__main__":
    main()
