"""``meshfit init``."""

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from meshfit.cli.output import AsJson, print_paths, stdout
from meshfit.cluster.here import physical_cores
from meshfit.errors import InputError
from meshfit.workload.models import read_model

TEMPLATE = """\
# A training job for meshfit. `meshfit plan` ranks layouts, `meshfit fit` runs the best ones here.
schema_version: 1
model: {model}          # a catalogue name (meshfit catalogue models), a folder or a config.json
workload:
  kind: training
  sequence_length: 128
  global_batch: 16 sequences      # or `4M tokens`
  precision: fp32                 # fp32, bf16_mixed
  learning_rate: 0.001
  data: {{source: text, path: "${{stdlib}}/*.py"}}   # text: bytes as tokens; or {{source: synthetic}}
cluster: {{here: {{ranks: {ranks}, oversubscribe: {oversubscribe}}}}}   # or `8x8 H100-SXM`, or a cluster.yaml
# layout: {{dp_shard: 2, tp: 2, micro_batch_size: 2}}   # for check, run and export
# baseline: {{dp_replicate: {ranks}}}                    # always a row of the comparison
search: {{micro_batch_size: [1, 2, 4], headroom: 10%}}   # bounds; what is left out is searched
# assume: {{straggler: 1.05, contention: 1.5}}           # what no one can know; see plan --sensitivity
run: {{shortlist: 6, repeats: 2, steps: 20, warmup: 5}}
"""

FEWEST_RANKS, MOST_RANKS = 4, 8
"""Enough to tell strategies apart; few enough for any model's heads and layers to divide."""


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="To write.")] = Path("job.yaml"),
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Of the catalogue, a folder or a config.json.")
    ] = "tiny-llama",
    as_json: AsJson = False,
) -> None:
    """Write a commented job.yaml for this machine."""
    read_model(model, path.parent)
    cores = physical_cores()
    ranks = min(max(FEWEST_RANKS, cores), MOST_RANKS)
    oversubscribe = str(ranks > cores).lower()
    text = TEMPLATE.format(model=_quoted(model), ranks=ranks, oversubscribe=oversubscribe)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} is already there; give another name") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    if as_json:
        print_paths([path], as_json=True)
    else:
        stdout.print(f"wrote {path}; next: meshfit plan {path}", highlight=False, markup=False)


def _quoted(text: str) -> str:
    """``text`` as YAML, in quotes where it would be read as something else."""
    return yaml.safe_dump(text, width=sys.maxsize, allow_unicode=True).removesuffix("...\n").strip()
