"""What vLLM's own code says of command lines, on a machine without GPUs.

    $MESHFIT_VLLM_PYTHON tools/vllm_answers.py < commands > answers

Runs in an environment of vLLM's CPU build (docs/serving.md), without meshfit. Each line of the input is a
JSON object: ``arguments`` of ``vllm serve``, of which the first is a folder with a ``config.json``, and
``environment``. Each line of the output is what vLLM refuses them with, or empty: its parser, then
``EngineArgs.create_engine_config`` with all that it checks of parallelism, lengths and batches. No
weights are read and no processes started. Checks that only ask for CUDA pass.
"""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from vllm.config import parallel
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser


class _AsCuda:
    """The platform, except that it says that it is like CUDA."""

    def __getattr__(self, name: str) -> object:
        if name == "is_cuda_alike":
            return lambda: True
        return getattr(current_platform, name)


def refused(arguments: list[str]) -> str:
    """What vLLM refuses a command with, in a line; empty where it takes it."""
    said = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(said):
        try:
            parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
            given = parser.parse_args(["--model", *arguments, "--skip-tokenizer-init"])
            AsyncEngineArgs.from_cli_args(given).create_engine_config()
        except SystemExit:
            return _line(said.getvalue().strip().splitlines()[-1:])
        except Exception as error:  # whatever it raises is its answer
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return _line([line for line in lines if "Value error" in line] or lines)
    return ""


def _line(lines: list[str]) -> str:
    """The first line without pydantic's words around it."""
    text = lines[0] if lines else "refused"
    return text.removeprefix("Value error, ").partition(" [type=")[0][:200]


def main() -> None:
    parallel.current_platform = _AsCuda()
    for line in sys.stdin:
        asked = json.loads(line)
        os.environ.update(asked.get("environment", {}))
        answer = refused(asked["arguments"])
        for name in asked.get("environment", {}):
            del os.environ[name]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
