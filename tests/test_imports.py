"""What importing meshfit may cost. A failure here means that PyTorch, or something slow, has been
imported at module level outside ``meshfit.run`` and ``meshfit.measure``: move it there, or into
the function that needs it."""

import subprocess
import sys
import time


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_importing_meshfit_takes_under_300_ms_beyond_an_empty_interpreter():
    def best(code: str) -> float:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            _python(code)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best("import meshfit") - best("pass") < 0.3


def test_the_whole_command_line_imports_without_torch_and_without_plotting():
    modules = _python("import meshfit.cli.main, sys; print(' '.join(sys.modules))").split()
    assert not {"torch", "transformers", "safetensors", "matplotlib"} & set(modules)
