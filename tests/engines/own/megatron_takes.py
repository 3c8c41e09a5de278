"""Run in an environment with PyTorch: what Megatron-LM's own parser and checks say of command lines.

``python megatron_takes.py WHEEL`` with JSON on stdin, a list of ``[variables, arguments]``; prints a list of
answers, empty where all is taken. WHEEL is the folder of the unpacked wheel, which is for Python 3.12.
"""

import contextlib
import io
import json
import os
import sys
import typing

import typing_extensions

typing.override = typing_extensions.override
sys.path.insert(0, sys.argv[1])
from megatron.training import arguments as theirs  # noqa: E402 (the name above is looked up on import)

theirs.get_device_arch_version = lambda: 9


def answer(variables: dict[str, str], words: list[str]) -> str:
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(variables)
    sys.argv = ["pretrain_gpt.py", *words]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            checked = theirs.validate_args(theirs.parse_args(), {})
            theirs.core_transformer_config_from_args(checked)
    except (Exception, SystemExit) as error:  # as many kinds as it has checks
        return f"{error}\n{said.getvalue()}"
    return ""


cases = json.load(sys.stdin)
print(json.dumps([answer(*case) for case in cases]))
