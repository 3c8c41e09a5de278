"""Servers end with the block that they run in; a stand-in takes the place of a real one."""

import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from meshfit.errors import RunError
from meshfit.serve.servers.commands import ServerCommand
from meshfit.serve.servers.running import running_servers

pytestmark = pytest.mark.dist

SERVES = "import sys, http.server as h; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
ENDS = "print('no such model'); raise SystemExit(3)"
SLEEPS = "import time; time.sleep(60)"


def commander(code):
    def command(_, port):
        argv = (sys.executable, "-c", code, str(port))
        return ServerCommand(argv=argv, name="stand-in", description="a stand-in")

    return command


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def processes_of(folder):
    return [p for p in psutil.process_iter(["cmdline"]) if SLEEPS in (p.info["cmdline"] or [])]


def test_all_replicas_answer_inside_and_none_after(tmp_path):
    with running_servers(
        commander(SERVES), tmp_path, count=2, ready_s=60, is_ready=answers
    ) as servers:
        urls = [server.url for server in servers]
        assert len(set(urls)) == 2
        assert all(answers(url) for url in urls)
    assert not any(answers(url) for url in urls)


def test_an_interrupt_ends_them_too(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        running_servers(commander(SERVES), tmp_path, count=1, ready_s=60, is_ready=answers) as one,
    ):
        url = one[0].url
        raise KeyboardInterrupt
    assert not answers(url)


def test_a_server_that_ends_says_its_last_words(tmp_path):
    with (
        pytest.raises(RunError, match=r"ended with 3 before it answered.*\n.*no such model"),
        running_servers(commander(ENDS), tmp_path, count=1, ready_s=60, is_ready=answers),
    ):
        pass


def test_a_server_that_never_answers_is_ended_after_its_time(tmp_path):
    with (
        pytest.raises(RunError, match="did not answer within 1 s"),
        running_servers(commander(SLEEPS), tmp_path, count=1, ready_s=1, is_ready=answers),
    ):
        pass
    assert not processes_of(tmp_path)


HOLDS = """
import sys, time
from pathlib import Path
from meshfit.serve.servers.running import running_servers
from tests.serve.servers.test_running import SERVES, answers, commander
with running_servers(commander(SERVES), Path(sys.argv[1]), count=1, ready_s=60, is_ready=answers) as one:
    print(one[0].url, flush=True)
    time.sleep(60)
"""


def test_a_server_ends_with_a_meshfit_that_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        url = holder.stdout.readline().strip()
        assert answers(url)
        holder.kill()
    deadline_s = time.monotonic() + 20
    while answers(url) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not answers(url)
