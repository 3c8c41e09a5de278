"""Terminal views of runs: the winner, where steps went, scaling, logs of engines."""
