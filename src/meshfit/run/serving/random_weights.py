"""``python -m meshfit.run.serving.random_weights CONFIG FOLDER``: weights for a model that has none."""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from meshfit.run.model.weights import write_initial_weights

SEED = 0


def main(argv: list[str]) -> None:
    """Writes random weights of the config file ``argv[0]`` into the folder ``argv[1]``, and a tokenizer
    whose words are numbers: vLLM tells no log-probabilities without one."""
    config, folder = json.loads(Path(argv[0]).read_text(encoding="utf-8")), Path(argv[1])
    write_initial_weights(config, folder, SEED)
    write_number_tokenizer(config["vocab_size"], folder)


def write_number_tokenizer(vocab_size: int, folder: Path) -> None:
    """One word a token: ``0``, ``1`` and so on."""
    words = {str(token): token for token in range(vocab_size)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
