"""Sessions of tests: modules that run several cases in the same processes, and leave what they found."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_LAST_CHARACTERS = 4000


def run_module(
    module: str, *arguments: str, ranks: int = 1, timeout_s: float, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """``python -m MODULE ARGUMENTS``, under torchrun for more than one rank. With ``check`` it has to end
    well."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(torchrun if ranks > 1 else []), "-m", module, *arguments],
        cwd=_ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if check:
        assert done.returncode == 0, (done.stdout + done.stderr)[-_LAST_CHARACTERS:]
    return done
