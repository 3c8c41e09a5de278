import asyncio
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from meshfit.serve.bench.http import async_client, streamed_completion


@contextmanager
def answering(events):
    """A server that answers every completion with these events; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(f"data: {event}\n\n" for event in events).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def tokens_of(events):
    async def collected(url):
        async with async_client(timeout_s=5) as client:
            stream = streamed_completion(client, url, "m", [1, 2], max_tokens=4)
            return [arrival.tokens async for arrival in stream]

    with answering(events) as url:
        return asyncio.run(collected(url))


def test_an_event_counts_the_tokens_that_it_lists_or_one():
    one, two = '{"choices": [{"text": "a"}]}', '{"choices": [{"token_ids": [5, 6]}]}'
    assert tokens_of([one, two, '{"choices": []}', "[DONE]"]) == [1, 2]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ('{"error": {"message": "out of memory"}}', "the server broke off: out of memory"),
        ('{"error": "gone"}', "the server broke off: gone"),
        ("{nonsense", "the stream holds no JSON: {nonsense"),
    ],
)
def test_what_a_server_says_in_a_stream_is_passed_on(event, message):
    with pytest.raises(ConnectionError, match=message):
        tokens_of(['{"choices": [{"text": "a"}]}', event])
