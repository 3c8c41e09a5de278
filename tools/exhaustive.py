"""Run every legal layout of jobs, and see whether a shortlist would have held the best.

    sudo python tools/exhaustive.py examples/exhaustive/*.yaml

Each job's lab is made for it. Launches are interleaved (A B C A B C), and a sweep that was
interrupted goes on where it stopped. What was measured goes to docs/exhaustive/JOB.json, the tables
of all sweeps there to docs/exhaustive.md, between its two marks; the words around them are written
by hand and stay.

    --score       runs nothing: writes the tables anew, with predictions as they were before the run
    --today       the same with the predictions of this meshfit
    --most N      runs N layouts of each job, spread over the predicted order, and only prints

A tool and no option of ``meshfit fit``: nobody who wants a layout wants this.
"""

import argparse
import json
from pathlib import Path

from pages import DOCS, write_tables
from rich.console import Console
from sweeps.every_layout import (
    ExhaustiveDocument,
    predicted_today,
    run_every_layout,
    timed_layouts,
)
from sweeps.every_layout_page import SweepShown, exhaustive_markdown
from sweeps.regret import TimedLayout, score_shortlist

from meshfit.job.read import read_job
from meshfit.lab.machine import lab_for

PAGE, FOLDER = DOCS / "exhaustive.md", DOCS / "exhaustive"
JOBS = DOCS.parent / "examples" / "exhaustive"

OF_FIT = "of `fit`"
BY_PREDICTION = "of as many first by prediction"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=Path("meshfit-runs/exhaustive"))
    parser.add_argument("--most", type=int, help="run so many layouts of each job, and only print")
    parser.add_argument("--score", action="store_true", help="run nothing")
    parser.add_argument("--today", action="store_true", help="run nothing, predict anew")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    runs = [] if arguments.score or arguments.today else arguments.jobs
    documents = [_swept(job, arguments.out, arguments.most, console) for job in runs]
    if arguments.most is None:
        for document in documents:
            _keep(document)
        documents = _kept()
    text = exhaustive_markdown([_shown(one, today=arguments.today) for one in documents])
    if arguments.most is None and not arguments.today:
        write_tables(PAGE, text)
    print(text)


def _swept(path: Path, out: Path, most: int | None, console: Console) -> ExhaustiveDocument:
    job = read_job(path)
    folder = out / (job.name if most is None else f"{job.name}-{most}")
    if job.topology.lab is None:
        return run_every_layout(job, out=folder, console=console, most=most)
    with lab_for(job.topology.lab):
        return run_every_layout(job, out=folder, console=console, most=most)


def _keep(document: ExhaustiveDocument) -> None:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{document['job']}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _kept() -> list[ExhaustiveDocument]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def _shown(document: ExhaustiveDocument, *, today: bool) -> SweepShown:
    predicted_s, shortlist = None, document["shortlist"]
    if today:
        predicted_s, shortlist = predicted_today(read_job(JOBS / f"{document['job']}.yaml"))
    layouts = timed_layouts(document, predicted_s)
    lists = {OF_FIT: _measured(shortlist, layouts), BY_PREDICTION: _first(layouts, len(shortlist))}
    return SweepShown(
        job=document["job"],
        conditions=_conditions(document),
        failed=[row["layout"] for row in document["rows"] if row["outcome"] != "ok"],
        scores={name: score_shortlist(layouts, labels) for name, labels in lists.items() if labels},
    )


def _first(layouts: list[TimedLayout], count: int) -> list[str]:
    ordered = sorted(layouts, key=lambda one: one.predicted_s)
    return [one.label for one in ordered[:count]]


def _measured(labels: list[str], layouts: list[TimedLayout]) -> list[str]:
    known = {one.label for one in layouts}
    return [label for label in labels if label in known]


def _conditions(document: ExhaustiveDocument) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in document["software"].items())
    return (
        f"{document['legal']} legal layouts on {document['ranks']} CPU ranks of one machine "
        f"({document['machine']}); links: {'; '.join(document['links'])}. {document['repeats']} "
        f"interleaved launches each, {document['timed_steps']} timed steps a launch, medians. "
        f"Measured {document['measured_at']} with meshfit {document['meshfit']}; {versions}."
    )


if __name__ == "__main__":
    main()
