from dataclasses import replace
from pathlib import Path

import pytest

from meshfit.errors import InputError, NotInstalledError, RunError
from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.serve.bench.tools import ToolRun, read_guidellm, read_vllm, run_tool, tool_command
from meshfit.serve.servers.running import RunningServer

TRAFFIC = TrafficSpec(
    prompt=LengthSpec(median_tokens=64, p99_tokens=64),
    output=LengthSpec(median_tokens=16, p99_tokens=16),
    rate_per_s=4.0,
)
RUN = ToolRun(
    server=RunningServer(url="http://host:8000", model="tiny", description="a server"),
    traffic=TRAFFIC,
    requests=30,
    seed=7,
    tokenizer="folder",
    result=Path("out/result.json"),
)


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_vllm_is_told_rate_lengths_and_seed():
    command = tool_command("vllm", RUN)
    assert command[:3] == ["vllm", "bench", "serve"]
    assert option(command, "--base-url") == "http://host:8000"
    assert option(command, "--request-rate") == "4"
    assert option(command, "--random-input-len") == "64"
    assert option(command, "--num-prompts") == "30"
    assert option(command, "--result-filename") == "result.json"


def test_vllms_burstiness_is_the_shape_of_the_gaps():
    bursts = replace(RUN, traffic=replace(TRAFFIC, arrivals="bursts", burstiness=4.0))
    assert option(tool_command("vllm", bursts), "--burstiness") == "0.25"


def test_guidellm_is_told_the_same_in_its_own_words():
    command = tool_command("guidellm", RUN)
    assert command[:2] == ["guidellm", "run"]
    assert option(command, "--profile") == "kind=poisson,rate=4"
    assert option(command, "--constraint") == "kind=max_requests,count=30"
    assert option(command, "--data") == "kind=synthetic_text,prompt_tokens=64,output_tokens=16"
    assert option(command, "--tokenizer") == "kind=hf_auto,model=folder"


@pytest.mark.parametrize("name", ["vllm", "guidellm"])
def test_tools_are_not_driven_with_traces_or_closed_loops(name):
    closed = replace(RUN, traffic=replace(TRAFFIC, rate_per_s=None, concurrency=4))
    with pytest.raises(InputError, match="driven at a rate"):
        tool_command(name, closed)


def test_a_tool_that_is_not_installed_is_said_to_be_unneeded(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotInstalledError, match="guidellm is not installed here; --client own"):
        run_tool("guidellm", RUN, timeout_s=1)


def test_details_of_vllms_result_become_requests():
    document = {
        "start_times": [100.0, 100.5],
        "input_lens": [64, 64],
        "output_lens": [3, 0],
        "ttfts": [0.2, 0.0],
        "itls": [[0.1, 0.1], []],
        "errors": ["", "timed out"],
    }
    first, second = read_vllm(document)
    assert (first.sent_s, first.first_token_s, first.gaps_s) == (0.0, 0.2, (0.1, 0.1))
    assert first.finished_s == pytest.approx(0.4)
    assert (second.sent_s, second.first_token_s, second.error) == (0.5, None, "timed out")
    with pytest.raises(RunError, match="lacks details"):
        read_vllm({"ttfts": []})


def test_requests_of_guidellms_result_are_put_into_order():
    def timed(start, first, last):
        timings = {
            "request_start": start,
            "first_token_iteration": first,
            "last_token_iteration": last,
        }
        return {"info": {"timings": timings}, "prompt_tokens": 64, "output_tokens": 16}

    requests = {
        "successful": [timed(12.0, 12.5, 13.0)],
        "errored": [timed(10.0, None, None)],
    }
    first, second = read_guidellm({"benchmarks": [{"requests": requests}]})
    assert first.error
    assert (second.sent_s, second.first_token_s, second.finished_s) == (2.0, 2.5, 3.0)
    with pytest.raises(RunError, match="lacks details"):
        read_guidellm({"benchmarks": []})


def test_a_tool_that_does_not_end_is_ended_and_said(tmp_path, monkeypatch):
    tool = tmp_path / "vllm"
    tool.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"vllm did not end within 0\.2 s"):
        run_tool("vllm", RUN, timeout_s=0.2)
