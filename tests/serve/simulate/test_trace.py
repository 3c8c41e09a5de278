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


def test_timestamps_may_have_zones_and_any_number_of_digits(tmp_path):
    text = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,100,5
2024-05-10 02:00:00.5+02:00,100,5
2024-05-10 00:00:02+00:00,100,5
"""
    arrivals_s = [one.arrival_s for one in read_trace(trace(tmp_path, text))]
    assert arrivals_s == pytest.approx([0, 0.49007, 1.99007])


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
        ("arrival_s,prompt_tokens,output_tokens\n1,2\n", "line 2: output_tokens is missing"),
        ("arrival_s,prompt_tokens,output_tokens\nnan,2,3\n", "arrival_s 'nan' is no number of"),
        ('{"arrival_s": 0, "prompt_tokens": 6.7, "output_tokens": 1}', "6.7 is no whole number"),
        ('{"arrival_s": 0, "prompt_tokens": 6, "output_tokens": true}', "True is no whole number"),
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [[1], 2]}',
            "hash_ids .* are not all numbers or words",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens,prefix,prefix_tokens\n1,100,3,a,500\n",
            "prefix_tokens 500 are more than the prompt's 100",
        ),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_trace(trace(tmp_path, text))
