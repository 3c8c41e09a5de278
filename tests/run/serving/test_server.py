"""One real server, shared by all tests here."""

import asyncio
import json
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.serve.bench.http import (
    async_client,
    completion,
    is_ready,
    model_at,
    streamed_completion,
)
from meshfit.serve.servers.commands import ServerSettings, server_command
from meshfit.serve.servers.running import running_servers
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.scheduler import SchedulerSpec

pytestmark = pytest.mark.dist

CONFIG = Path("examples/tiny-llama/config.json")
PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    from meshfit.run.model.weights import write_initial_weights

    folder = tmp_path_factory.mktemp("served") / "weights"
    write_initial_weights(json.loads(CONFIG.read_text()), folder, 0)
    return folder


@pytest.fixture(scope="module")
def server(weights):
    limits = SchedulerSpec(max_sequences=1, token_budget=256, kv_capacity_tokens=256)
    settings = ServerSettings(folder=weights, layout=ServingLayout(), scheduler=limits)
    with running_servers(
        lambda index, port: server_command("transformers", settings, port=port, index=index),
        weights.parent,
        count=1,
        ready_s=300,
        is_ready=is_ready,
    ) as servers:
        yield servers[0]


def whole(server, prompt, tokens):
    return completion(server.url, server.model, prompt, max_tokens=tokens, timeout_s=120)


def test_it_names_its_model(server):
    assert model_at(server.url) == server.model == "weights"


def test_it_generates_what_a_forward_over_everything_finds_likeliest(server, weights):
    import torch
    from transformers import AutoModelForCausalLM

    choice = whole(server, PROMPT, 6)["choices"][0]
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    tokens = [*PROMPT, *choice["token_ids"]]
    with torch.inference_mode():
        found = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
    places = range(len(PROMPT) - 1, len(tokens) - 1)
    assert [int(found[place].argmax()) for place in places] == choice["token_ids"]
    expected = [float(found[place].max()) for place in places]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)


def test_a_stream_brings_one_event_a_token(server):
    async def events():
        async with async_client(timeout_s=120) as client:
            stream = streamed_completion(client, server.url, server.model, PROMPT, max_tokens=5)
            return [event async for event in stream]

    arrived = asyncio.run(events())
    assert [event.tokens for event in arrived] == [1] * 5
    times = [event.at_s for event in arrived]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [
        ([], 4, "prompt must be a list of token ids below 256"),
        ([256], 4, "token ids below 256"),
        (PROMPT, 300, "4 [+] 300 tokens exceed the 256 of the model"),
        (PROMPT, 0, "max_tokens must be a whole number of at least 1"),
    ],
)
def test_what_it_does_not_serve_is_refused_with_the_reason(server, prompt, tokens, message):
    with pytest.raises(InputError, match=message):
        whole(server, prompt, tokens)


def test_an_address_where_nothing_answers_is_no_server(server):
    with pytest.raises(InputError, match="is no OpenAI-compatible server that answers"):
        model_at(f"{server.url}/elsewhere")
