"""The HTTP side: ``/health``, ``/v1/models`` and ``/v1/completions`` with token ids as prompts."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from meshfit.run.serving.generation import GeneratedToken, GreedyModel


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a client asks for; ``tokens`` gets what is generated, then None."""

    prompt: list[int]
    max_tokens: int
    stream: bool
    tokens: "queue.SimpleQueue[GeneratedToken | None]" = field(default_factory=queue.SimpleQueue)

    def generated(self) -> Iterator[GeneratedToken]:
        """The tokens as they come."""
        return iter(self.tokens.get, None)


class CompletionServer(ThreadingHTTPServer):
    """Answers each client in a thread of its own; one thread computes, first come first served."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int, model: GreedyModel, name: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.model = model
        self.name = name
        self.waiting: queue.SimpleQueue[Completion] = queue.SimpleQueue()
        threading.Thread(target=self._compute, daemon=True, name="compute").start()

    def _compute(self) -> None:
        while True:
            asked = self.waiting.get()
            for token in self.model.generate(asked.prompt, asked.max_tokens):
                asked.tokens.put(token)
            asked.tokens.put(None)

    def completion(self, body: dict[str, Any]) -> Completion:
        """The body of a request.

        Raises:
            ValueError: it asks for what this server does not do, with the reason.
        """
        prompt, max_tokens = body.get("prompt"), body.get("max_tokens", 16)
        vocabulary = range(self.model.vocab_size)
        if not isinstance(prompt, list) or not prompt or any(t not in vocabulary for t in prompt):
            raise ValueError(f"prompt must be a list of token ids below {len(vocabulary)}")
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError("max_tokens must be a whole number of at least 1")
        if len(prompt) + max_tokens > self.model.longest_tokens:
            raise ValueError(
                f"{len(prompt)} + {max_tokens} tokens exceed the {self.model.longest_tokens} of the model"
            )
        if body.get("temperature", 0):
            raise ValueError("only temperature 0 (greedy) is served")
        return Completion(prompt=prompt, max_tokens=max_tokens, stream=bool(body.get("stream")))


class _Handler(BaseHTTPRequestHandler):
    server: CompletionServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(HTTPStatus.OK, {})
        elif self.path == "/v1/models":
            models = [{"id": self.server.name, "object": "model"}]
            self._answer(HTTPStatus.OK, {"object": "list", "data": models})
        else:
            self._answer(HTTPStatus.NOT_FOUND, _error(f"{self.path} is not served"))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/completions":
            self._answer(HTTPStatus.NOT_FOUND, _error(f"{self.path} is not served"))
            return
        try:
            completion = self.server.completion(json.loads(content))
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, _error(str(error)))
            return
        self.server.waiting.put(completion)
        if completion.stream:
            self._stream(completion)
        else:
            self._answer(HTTPStatus.OK, self._whole(completion))

    def _whole(self, completion: Completion) -> dict[str, Any]:
        return self._document(list(completion.generated()), prompt=len(completion.prompt))

    def _stream(self, completion: Completion) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for token in completion.generated():
            self._chunk(json.dumps(self._document([token])))
        self._chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def _document(
        self, tokens: list[GeneratedToken], *, prompt: int | None = None
    ) -> dict[str, Any]:
        """Tokens as an OpenAI completion; text is their ids, as there is no tokeniser."""
        choice = {
            "index": 0,
            "text": "".join(f" {one.token}" for one in tokens),
            "token_ids": [one.token for one in tokens],
            "logprobs": {"token_logprobs": [one.log_probability for one in tokens]},
            "finish_reason": None if prompt is None else "length",
        }
        document = {
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.server.name,
            "choices": [choice],
        }
        if prompt is not None:
            document["usage"] = {"prompt_tokens": prompt, "completion_tokens": len(tokens)}
        return document

    def _answer(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing for each request."""


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}
