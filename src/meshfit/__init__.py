"""meshfit: choose a parallel layout by rules, prediction, real runs and proof.

Importing this package never imports PyTorch; only ``meshfit.run`` (the worker that runs under
torchrun) and ``meshfit.measure`` (its instruments) do.
"""

__version__ = "0.1.0"
