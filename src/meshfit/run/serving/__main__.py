"""``python -m meshfit.run.serving FOLDER --port PORT``: serves until whatever started it ends."""

import argparse
from pathlib import Path

from meshfit.run.lifeline import hold_lifeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="config.json and weights")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    hold_lifeline()

    from meshfit.run.serving.generation import GreedyModel  # noqa: PLC0415
    from meshfit.run.serving.server import CompletionServer  # noqa: PLC0415

    model = GreedyModel(arguments.folder, threads=arguments.threads)
    CompletionServer(arguments.port, model, arguments.folder.name).serve_forever()


if __name__ == "__main__":
    main()
