"""``python -m meshfit.run.serving.random_weights CONFIG FOLDER``: weights for a model that has none."""

import json
import sys
from pathlib import Path

from meshfit.run.model.weights import write_initial_weights

SEED = 0


def main(argv: list[str]) -> None:
    """Writes random weights of the config file ``argv[0]`` into the folder ``argv[1]``."""
    config = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    write_initial_weights(config, Path(argv[1]), SEED)


if __name__ == "__main__":
    main(sys.argv[1:])
