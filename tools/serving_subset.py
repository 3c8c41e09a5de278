"""Make the rows that ``make test`` validates servers on: a spread small enough to keep.

    python tools/serving_subset.py SERVING.csv tests/validate/data/serving_subset.csv

Every tenth row of each system, backend and model, and four whole groups of layouts.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

from meshfit.validate.serving.rows import COLUMNS

EVERY = 10
WHOLE_GROUPS = (
    ("Qwen/Qwen3-32B", "h100_sxm", "vllm", "1024", "1024"),
    ("Qwen/Qwen3-235B-A22B-FP8", "h100_sxm", "trtllm", "1024", "1024"),
    ("meta-llama/Llama-3.1-70B", "b200_sxm", "vllm", "1024", "1024"),
    ("openai/gpt-oss-120b", "b200_sxm", "trtllm", "1024", "1024"),
)
GROUP = ("model_path", "system", "backend", "isl", "osl")


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    with source.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    kinds = defaultdict(list)
    for row in rows:
        kinds[row["system"], row["backend"], row["model_path"], row["mode"]].append(row["id"])
    kept = {one for ids in kinds.values() for one in ids[::EVERY]}
    kept |= {
        row["id"]
        for row in rows
        if row["mode"] == "agg" and tuple(row[name] for name in GROUP) in WHOLE_GROUPS
    }
    with target.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if row["id"] in kept)


if __name__ == "__main__":
    main()
