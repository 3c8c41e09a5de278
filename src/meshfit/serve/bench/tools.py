"""Benchmark tools that others keep, used where they are installed: ``vllm bench serve``, guidellm.

Each is told the same traffic and writes a JSON file, which is read into the form of our own client.
They draw prompts and arrivals themselves, so that requests are alike only in distribution.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meshfit.errors import InputError, NotInstalledError, RunError
from meshfit.record.serving import ServedRequest
from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.servers.running import RunningServer

ToolName = Literal["vllm", "guidellm"]

_LAST_LINES = 12
_VLLM_COLUMNS = ("start_times", "input_lens", "output_lens", "ttfts", "itls", "errors")


@dataclass(frozen=True, kw_only=True)
class ToolRun:
    """What a tool is asked to do against one server."""

    server: RunningServer
    traffic: TrafficSpec
    requests: int
    seed: int
    tokenizer: str | None
    result: Path


def installed_tool(name: ToolName) -> bool:
    """Whether the command is on the PATH."""
    return shutil.which(name) is not None


def tool_command(name: ToolName, run: ToolRun) -> list[str]:
    """The command line of a tool.

    Raises:
        InputError: it cannot drive such traffic.
    """
    traffic = run.traffic
    if traffic.rate_per_s is None or traffic.trace is not None:
        raise InputError(f"{name} is driven at a rate; traffic of a trace or a closed loop is not")
    if name == "vllm":
        return _vllm(run, traffic.rate_per_s)
    if traffic.arrivals == "bursts":
        raise InputError("guidellm sends poisson or constant arrivals; for bursts use vllm or own")
    return _guidellm(run, traffic.rate_per_s)


def run_tool(name: ToolName, run: ToolRun, *, timeout_s: float) -> tuple[ServedRequest, ...]:
    """What a tool measured.

    Raises:
        InputError: it cannot drive such traffic.
        NotInstalledError: it is not installed.
        RunError: it failed, with the end of what it said, or did not end in time.
    """
    if not installed_tool(name):
        raise NotInstalledError(f"{name} is not installed here; --client own needs nothing more")
    command = tool_command(name, run)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{name} did not end within {timeout_s:g} s") from None
    if done.returncode or not run.result.is_file():
        said = "\n".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
        raise RunError(f"{name} ended with {done.returncode}:\n{said}")
    document = json.loads(run.result.read_text(encoding="utf-8"))
    return read_vllm(document) if name == "vllm" else read_guidellm(document)


def _vllm(run: ToolRun, rate_per_s: float) -> list[str]:
    """``--burstiness`` is the shape of the gamma distribution: 1 over the squared variation."""
    traffic = run.traffic
    burstiness = 1 / traffic.burstiness if traffic.arrivals == "bursts" else 1.0
    tokenizer = ["--tokenizer", run.tokenizer] if run.tokenizer else ["--skip-tokenizer-init"]
    return [
        *("vllm", "bench", "serve", "--backend", "openai"),
        *("--base-url", run.server.url, "--endpoint", "/v1/completions"),
        *("--model", run.server.model, *tokenizer),
        *("--dataset-name", "random", "--ignore-eos"),
        *("--random-input-len", str(round(traffic.prompt.median_tokens))),
        *("--random-output-len", str(round(traffic.output.median_tokens))),
        *("--num-prompts", str(run.requests), "--seed", str(run.seed)),
        *("--request-rate", f"{rate_per_s:g}", "--burstiness", f"{burstiness:g}"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(run.result.parent), "--result-filename", run.result.name),
    ]


def _guidellm(run: ToolRun, rate_per_s: float) -> list[str]:
    traffic = run.traffic
    kind = "constant" if traffic.arrivals == "constant" else "poisson"
    prompt, output = round(traffic.prompt.median_tokens), round(traffic.output.median_tokens)
    tokenizer = ["--tokenizer", f"kind=hf_auto,model={run.tokenizer}"] if run.tokenizer else []
    return [
        *("guidellm", "run"),
        *("--backend", f"kind=openai_http,target={run.server.url},model={run.server.model}"),
        *("--profile", f"kind={kind},rate={rate_per_s:g}"),
        *("--constraint", f"kind=max_requests,count={run.requests}"),
        *tokenizer,
        *("--data", f"kind=synthetic_text,prompt_tokens={prompt},output_tokens={output}"),
        *("--output", f"kind=json,path={run.result}"),
    ]


def read_vllm(document: Mapping[str, Any]) -> tuple[ServedRequest, ...]:
    """Requests of a result that ``vllm bench serve --save-detailed`` wrote.

    Raises:
        RunError: it lacks what is needed of each request.
    """
    try:
        began_s = min(document["start_times"])
        columns = [document[name] for name in _VLLM_COLUMNS]
        rows = [dict(zip(_VLLM_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
        return tuple(_vllm_request(number, row, began_s) for number, row in enumerate(rows))
    except (KeyError, ValueError, TypeError) as error:
        raise RunError(f"vllm's result lacks details of its requests: {error!r}") from None


def _vllm_request(number: int, row: Mapping[str, Any], began_s: float) -> ServedRequest:
    sent_s = row["start_times"] - began_s
    first_s = None if row["errors"] else sent_s + row["ttfts"]
    return ServedRequest(
        number=number,
        prompt_tokens=row["input_lens"],
        output_tokens=row["output_lens"],
        planned_s=sent_s,
        sent_s=sent_s,
        first_token_s=first_s,
        finished_s=None if first_s is None else first_s + sum(row["itls"]),
        gaps_s=() if row["errors"] else tuple(row["itls"]),
        error=row["errors"],
    )


def read_guidellm(document: Mapping[str, Any]) -> tuple[ServedRequest, ...]:
    """Requests of the first benchmark of guidellm's JSON; it does not keep single gaps.

    Raises:
        RunError: it lacks what is needed of each request.
    """
    try:
        requests = document["benchmarks"][0]["requests"]
        done = [(one, "") for one in requests["successful"]]
        failed = [(one, "guidellm: error") for one in requests["errored"]]
        rows = sorted(done + failed, key=lambda row: _timing(row[0], "request_start"))
        began_s = _timing(rows[0][0], "request_start")
        return tuple(
            _guidellm_request(number, began_s, one, error)
            for number, (one, error) in enumerate(rows)
        )
    except (LookupError, TypeError) as error:
        raise RunError(f"guidellm's result lacks details of its requests: {error!r}") from None


def _guidellm_request(
    number: int, began_s: float, one: Mapping[str, Any], error: str
) -> ServedRequest:
    sent_s = _timing(one, "request_start") - began_s
    return ServedRequest(
        number=number,
        prompt_tokens=int(one["prompt_tokens"] or 0),
        output_tokens=int(one["output_tokens"] or 0),
        planned_s=sent_s,
        sent_s=sent_s,
        first_token_s=None if error else _timing(one, "first_token_iteration") - began_s,
        finished_s=None if error else _timing(one, "last_token_iteration") - began_s,
        error=error,
    )


def _timing(one: Mapping[str, Any], name: str) -> float:
    return float(one["info"]["timings"][name])
