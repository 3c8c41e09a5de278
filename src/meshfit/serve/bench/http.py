"""What an OpenAI-compatible server is asked over HTTP. httpx2 comes with transformers' Hub client."""

import importlib.util
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshfit.errors import InputError, NotInstalledError

_READY_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What one event of a stream brought, and when (on the clock of ``time.perf_counter``)."""

    at_s: float
    tokens: int


def require_client() -> None:
    """
    Raises:
        NotInstalledError: httpx2 is not.
    """
    if importlib.util.find_spec("httpx2") is None:
        raise NotInstalledError("driving a server needs httpx2: pip install 'meshfit[bench]'")


def is_ready(url: str) -> bool:
    """Whether a server answers at ``url``."""
    import httpx2  # noqa: PLC0415

    try:
        return bool(httpx2.get(f"{url}/v1/models", timeout=_READY_TIMEOUT_S).is_success)
    except httpx2.HTTPError:
        return False


def model_at(url: str) -> str:
    """What the server calls the model that it serves.

    Raises:
        InputError: nothing answers there, or it is no such server.
    """
    import httpx2  # noqa: PLC0415

    try:
        answer = httpx2.get(f"{url}/v1/models", timeout=_READY_TIMEOUT_S)
        return str(answer.raise_for_status().json()["data"][0]["id"])
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{url} is no OpenAI-compatible server that answers: {error}") from None


def completion(
    url: str, model: str, prompt: Sequence[int], *, max_tokens: int, timeout_s: float
) -> dict[str, Any]:
    """One greedy completion with log-probabilities, not streamed.

    Raises:
        InputError: the server refuses, with its reason.
    """
    import httpx2  # noqa: PLC0415

    body = _body(model, prompt, max_tokens) | {"logprobs": 1, "return_token_ids": True}
    try:
        answer = httpx2.post(f"{url}/v1/completions", json=body, timeout=timeout_s)
    except httpx2.HTTPError as error:
        raise InputError(f"{url}: {error or type(error).__name__}") from None
    if not answer.is_success:
        raise InputError(f"{url} refuses: {answer.status_code} {answer.text[:200]}")
    document: dict[str, Any] = answer.json()
    return document


def async_client(*, timeout_s: float) -> Any:
    """A client with as many connections as requests are in flight."""
    import httpx2  # noqa: PLC0415

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(timeout=timeout_s, limits=limits)


async def streamed_completion(
    client: Any,
    url: str,
    model: str,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> AsyncIterator[Arrival]:
    """The events of one streamed completion as they arrive.

    Raises:
        ConnectionError: the server refuses or breaks off, with its reason.
    """
    import httpx2  # noqa: PLC0415

    body = _body(model, prompt, max_tokens) | {"stream": True}
    try:
        async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
            if not answer.is_success:
                text = (await answer.aread()).decode(errors="replace")
                raise ConnectionError(f"{answer.status_code} {text[:200]}")
            async for line in answer.aiter_lines():
                if (tokens := _tokens_of(line)) > 0:
                    yield Arrival(at_s=clock(), tokens=tokens)
    except httpx2.TimeoutException:
        raise ConnectionError("nothing came within the deadline of a request") from None
    except httpx2.HTTPError as error:
        raise ConnectionError(str(error) or type(error).__name__) from None


def _body(model: str, prompt: Sequence[int], max_tokens: int) -> dict[str, Any]:
    """Greedy, and not ended by an end-of-text token (``ignore_eos`` is vLLM's and SGLang's key)."""
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


def _tokens_of(line: str) -> int:
    """Tokens in one line of an event stream: as many as it lists, else one where it has a choice.

    Raises:
        ConnectionError: the line is wrong, or the server's own word that the request failed.
    """
    data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
    if not data or data == "[DONE]":
        return 0
    try:
        event = json.loads(data)
        choices, failure = event.get("choices") or [], event.get("error")
    except (ValueError, AttributeError):
        raise ConnectionError(f"the stream holds no JSON: {data[:80]}") from None
    if failure:
        reason = failure.get("message", failure) if isinstance(failure, dict) else failure
        raise ConnectionError(f"the server broke off: {str(reason)[:200]}")
    if not choices:
        return 0
    return len(choices[0].get("token_ids") or [0])
