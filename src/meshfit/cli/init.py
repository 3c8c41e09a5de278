"""``meshfit init``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import AsJson, print_paths, stdout
from meshfit.errors import InputError

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
run: {{shortlist: 4, repeats: 2, steps: 20, warmup: 5}}
"""


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("job.yaml"),
    model: Annotated[
        str, typer.Option(help="Catalogue name, folder or config.json.")
    ] = "tiny-llama",
    as_json: AsJson = False,
) -> None:
    """Write a commented job.yaml for this machine."""
    cores = os.cpu_count() or 1
    ranks = max(4, cores)
    text = TEMPLATE.format(model=model, ranks=ranks, oversubscribe=str(ranks > cores).lower())
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
        stdout.print(f"wrote {path}; next: meshfit plan {path}", highlight=False)
