import pytest

from meshfit.errors import InputError
from meshfit.serve.simulate.trace import read_trace


def trace(tmp_path, text):
    path = tmp_path / "trace"
    path.write_text(text)
    return path


def test_columns_of_meshfit_are_read_and_put_into_order(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,priority,prefix,prefix_tokens\n"
    text += "12.5,100,5,1,chat,64\n10,200,7,,,\n"
    first, second = read_trace(trace(tmp_path, text))
    assert (first.arrival_s, first.prompt_tokens, first.prefix) == (0.0, 200, ())
    assert (second.arrival_s, second.output_tokens, second.priority) == (2.5, 5, 1)
    assert (second.prefix, second.segment_tokens) == (("chat",), 64)


def test_azure_traces_are_read(tmp_path):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
    text += "2023-11-16 18:17:04.0319600,3180,8\n"
    first, second = read_trace(trace(tmp_path, text))
    assert (first.prompt_tokens, second.output_tokens) == (4808, 8)
    assert second.arrival_s == pytest.approx(0.052)


def test_mooncake_traces_are_read_with_their_shared_blocks(tmp_path):
    text = '{"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [0, 1, 2]}\n'
    text += '{"timestamp": 3052, "input_length": 600, "output_length": 1, "hash_ids": [0, 9]}\n'
    first, second = read_trace(trace(tmp_path, text))
    assert second.arrival_s == pytest.approx(3.052)
    assert (first.prefix, second.prefix, second.segment_tokens) == ((0, 1, 2), (0, 9), 512)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no requests"),
        ("a,b\n1,2\n", "line 2: no column with the time of arrival.*found a, b"),
        ("arrival_s,prompt_tokens\n1,2\n", "line 2: output_tokens is missing"),
        ("arrival_s,prompt_tokens,output_tokens\n1,two,3\n", "prompt_tokens 'two' is no whole"),
        ("arrival_s,prompt_tokens,output_tokens\n1,2,0\n", "output_tokens 0 must be at least 1"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,2,3\n", "arrival_s '-1' is no number of"),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1}\nnonsense\n',
            "line 2 is no JSON object: 'nonsense'",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,1\n", "TIMESTAMP 'soon' is no date"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_trace(trace(tmp_path, text))
