"""Comparing our counts with the model that transformers builds, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from meshfit.errors import InputError, NotInstalledError, RunError

TIMEOUT_S = 300


def built_counts(config: Mapping[str, Any]) -> dict[str, Any]:
    """``class``, ``version``, ``total`` and ``by_part`` of the model that transformers builds.

    Raises:
        InputError: transformers cannot build it.
        NotInstalledError: torch or transformers is not installed.
        RunError: the process died or took too long.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise NotInstalledError(
            f"--verify builds the model, but {' and '.join(missing)} cannot be imported;"
            " pip install 'meshfit[run]'"
        )
    command = [sys.executable, "-m", "meshfit.run.verify"]
    try:
        process = subprocess.run(
            command,
            input=json.dumps(dict(config)),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"building the model took more than {TIMEOUT_S} s") from None
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"building the model failed with exit code {process.returncode}: {last}")
    document: dict[str, Any] = json.loads(process.stdout)
    if "error" in document:
        raise InputError(
            f"transformers {document['version']} cannot build this model: {document['error']}"
        )
    return document


def comparison(parameters: Mapping[str, Any], built: Mapping[str, Any]) -> dict[str, Any]:
    """Ours beside transformers', part by part: ``agrees``, ``class``, ``version``, ``difference``.

    ``difference`` holds ours minus theirs, of the parts where that is not 0.
    """
    difference = {
        part: ours - built["by_part"][part]
        for part, ours in parameters["by_part"].items()
        if ours != built["by_part"][part]
    }
    return {
        "agrees": not difference and parameters["total"] == built["total"],
        "class": built["class"],
        "transformers": built["version"],
        "total": built["total"],
        "difference": difference,
    }
