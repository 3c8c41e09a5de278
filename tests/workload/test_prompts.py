"""Prompts and answers as tokens, packed into sequences."""

import json

import numpy as np
import pytest

from meshfit.errors import InputError
from meshfit.workload.corpus import open_corpus
from meshfit.workload.prompts import END_TOKEN, read_prompts
from meshfit.workload.training import DataSpec


def written(tmp_path, *pairs):
    path = tmp_path / "lessons.jsonl"
    lines = [json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in pairs]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def opened(path, **changes):
    sizes = {"vocab_size": 256, "sequence_length": 4, "global_batch_size": 2}
    return open_corpus(DataSpec(source="documents", path=path, seed=1), **sizes | changes)


def test_prompts_are_complements_and_answers_end_with_a_target(tmp_path):
    (document,) = read_prompts(written(tmp_path, ("ab", "c")))
    assert document.tolist() == [~ord("a"), ~ord("b"), ord("c"), END_TOKEN]


def test_an_epoch_has_every_document_once_in_an_order_of_its_own(tmp_path):
    pairs = [("q", chr(ord("a") + index)) for index in range(8)]
    corpus = opened(written(tmp_path, *pairs), sequence_length=23, global_batch_size=1)
    assert corpus.num_windows == 1
    epochs = [corpus.batch(step, 0, 1)[0] for step in range(2)]
    answers = [[token for token in epoch.tolist() if token > 0] for epoch in epochs]
    assert answers[0] != answers[1]
    assert sorted(answers[0]) == sorted(answers[1]) == [ord(answer) for _, answer in pairs]


def test_targets_are_counted_as_they_are_in_the_batch(tmp_path):
    corpus = opened(written(tmp_path, ("why? ", "because"), ("and ", "so on, at length")))
    for step in range(3):
        labels = corpus.batch(step, 0, 2)[:, 1:]
        assert corpus.valid_tokens(step) == np.count_nonzero(labels >= 0)


def test_a_rank_asks_for_its_part_and_gets_what_the_whole_batch_has_there(tmp_path):
    corpus = opened(written(tmp_path, ("why? ", "because"), ("and ", "so on, at length")))
    whole = corpus.batch(1, 0, 2)
    assert (corpus.batch(1, 1, 1) == whole[1:]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ('{"prompt": "a"}', "line 1: write"),
        ('{"prompt": "a", "answer": 3}', "line 1: write"),
        ('{"prompt": "a", "answer": "\\u0000"}', "without zero bytes"),
        ("\n", "holds no document"),
        ('{"prompt": "a", "answer": "\\ud800"}', "line 1: no text .surrogates not allowed"),
        ('{"prompt": "", "answer": "a"}', "holds 2 tokens in 1 documents"),
    ],
)
def test_what_is_no_document_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "lessons.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        opened(str(path))


def test_text_may_hold_line_breaks_that_end_no_line_of_json(tmp_path):
    path = tmp_path / "lessons.jsonl"
    path.write_text('{"prompt": "a", "answer": "b\u2028c\x85"}\r\n', encoding="utf-8")
    (document,) = read_prompts(str(path))
    assert document.tolist() == [~ord("a"), *"b\u2028c\x85".encode(), END_TOKEN]


def test_a_document_may_be_empty_and_is_its_end_alone(tmp_path):
    empty, _ = read_prompts(written(tmp_path, ("", ""), ("why? ", "because")))
    assert empty.tolist() == [END_TOKEN]


def test_a_file_that_is_no_utf8_is_refused(tmp_path):
    path = tmp_path / "lessons.jsonl"
    path.write_bytes(b'{"prompt": "a", "answer": "\xe9"}\n')
    with pytest.raises(InputError, match=r"cannot be read .'utf-8' codec"):
        opened(str(path))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        opened(str(tmp_path / "absent.jsonl"))
