"""Run under torchrun: many exported scripts, or many requests of the worker, in one world.

``python -m tests.engines.export_session script|worker FOLDER`` does each subfolder's case in the order of names,
with a rendezvous of its own. With ``script`` it stands for a machine without meshfit: importing
meshfit fails, so this file must not import it either.
"""

import importlib.abc
import runpy
import sys
from pathlib import Path

import torch

from tests.rendezvous import rendezvous_at


class RefuseMeshfit(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] == "meshfit":
            raise ImportError("this environment has no meshfit")


def run_script(case: Path) -> None:
    sys.argv = [str(case / "export" / "train.py"), "--losses", str(case / "losses.json")]
    runpy.run_path(sys.argv[0], run_name="__main__")


def run_worker(case: Path) -> None:
    from meshfit.run.worker import main

    for request in ("weights", "measure"):
        folder = case / request
        rendezvous_at(folder / "rendezvous")
        main([str(folder / "request.json"), str(folder)])


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    if kind == "script":
        sys.meta_path.insert(0, RefuseMeshfit())
    for case in sorted(path for path in folder.iterdir() if path.is_dir()):
        rendezvous_at(case / f"rendezvous_{kind}")
        run_worker(case) if kind == "worker" else run_script(case)
