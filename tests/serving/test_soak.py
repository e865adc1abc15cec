"""Many clients at a time, some of them ill behaved: nothing leaks, every answer is right."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time

import pytest

from framework import LLM, SamplingParams
from framework.testing.fake_model import MODEL, fake_plugins
from framework.testing.served import start_server
from tests.serving.wire import Wire, events

CLIENTS = 200
LIMIT = 60
"""Seconds for anything to happen that must."""

PROMPTS = [f"Question {n}: " + text for n, text in enumerate(("ab cd. " * 4, "äöü🙂 ", "x" * 60))]
SAMPLINGS = [
    {"max_tokens": 40},
    {"max_tokens": 30, "stop": ["cd", "🙂"]},
    {"max_tokens": 25, "n": 3, "temperature": 1.0},
    {"max_tokens": 12, "logprobs": 2},
]

RUBBISH = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, where none is spoken
    b"BREW /pot HTCPCP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"b" * 200_000,
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"\x00" * 1000,
]
BODIES = [
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b"[" * 10_000,
    {"prompt": "a", "temperature": "hot"},
    {"prompt": "a", "max_tokens": -1},
    {"prompt": [10**30]},
    {"prompt": "a", "n": 10**9},
    {"prompt": "a" * 10_000},
    {"prompt": "a", "stop": [""]},
    {"prompt": "\ud800"},
    {"prompt": "a", "logit_bias": {"x": 1}},
    {"prompt": "a", "stream_options": {}},
    {"prompt": "a", "model": "another"},
]
PATHS = ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/nowhere"]


def offline():
    """(prompt, sampling) -> the texts that the engine gives without a server."""
    llm = LLM(MODEL, plugins=fake_plugins(), executor="echo")
    try:
        answers = {}
        for p, prompt in enumerate(PROMPTS):
            for s, fields in enumerate(SAMPLINGS):
                sampling = SamplingParams(**fields)
                (output,) = llm.generate(prompt, sampling, use_tqdm=False)
                answers[p, s] = [one.text for one in output.outputs]
        return answers
    finally:
        llm.close()


class Soak:
    """What the clients do, and what they found."""

    def __init__(self, url, seed):
        self.url, self.random = url, random.Random(seed)
        self.expected = offline()
        self.counts = dict.fromkeys(("answered", "left", "rubbish"), 0)

    async def request(self):
        kind = self.random.random()
        if kind < 0.1:
            await self.rubbish()
        elif kind < 0.3:
            await self.leaves()
        else:
            await self.answered()

    def body(self):
        p, s = self.random.randrange(len(PROMPTS)), self.random.randrange(len(SAMPLINGS))
        stream = self.random.random() < 1 / 3
        return (p, s), {"prompt": PROMPTS[p], "seed": 1, **SAMPLINGS[s], "stream": stream}

    async def answered(self):
        key, body = self.body()
        wire = await Wire.open(self.url)
        status = await wire.ask("/v1/completions", body)
        data = await wire.body()
        assert status == 200, data
        texts = [""] * body.get("n", 1)
        for part in events(data) if body["stream"] else [json.loads(data)]:
            for choice in part["choices"]:
                texts[choice["index"]] += choice["text"]
        assert texts == self.expected[key], body
        await wire.close()
        self.counts["answered"] += 1

    async def leaves(self):
        _, body = self.body()
        wire = await Wire.open(self.url)
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
        whole = head.encode() + b"content-type: application/json\r\n\r\n" + data
        moment = self.random.random()
        if moment < 0.2:
            wire.send(whole[: self.random.randrange(len(whole))])
        else:
            wire.send(whole)
        if moment > 0.5:
            await wire.some()
        elif moment > 0.35:
            await asyncio.sleep(self.random.random() * 0.05)
        wire.leave()
        self.counts["left"] += 1

    async def rubbish(self):
        wire = await Wire.open(self.url)
        if self.random.random() < 0.4:
            wire.send(self.random.choice(RUBBISH))
            answer = await asyncio.wait_for(wire.some(), LIMIT)
            assert not answer.startswith(b"HTTP/1.1 5"), answer
            wire.leave()
        else:
            path, body = self.random.choice(PATHS), self.random.choice(BODIES)
            status = await wire.ask(path, body)
            assert status < 500, (path, body, await wire.body())
            await wire.close()
        self.counts["rubbish"] += 1

    async def run(self, enough):
        """All clients, each asking again until `enough()`."""

        async def client():
            while not enough():
                await self.request()

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())


def held(server):
    """What a server holds when nobody asks anything."""
    pids = [server.process.pid, *server.children()]
    return {
        "files": [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids],
        "tasks": server.counted("event_loop_tasks"),
        "requests": server.counted("num_requests_running") + server.counted("num_requests_waiting"),
        "http": server.counted("http_requests_running"),
        "pages": server.counted("kv_cache_usage_perc"),
    }


def memory(server):
    """Resident bytes of front end and core."""
    total = 0
    for pid in [server.process.pid, *server.children()]:
        with open(f"/proc/{pid}/statm") as file:
            total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def at_rest(server):
    """What it holds at first; whoever has just asked for that may be there for a moment."""
    end = time.monotonic() + LIMIT
    found, before = held(server), None
    while found != before:
        assert time.monotonic() < end, (found, before)
        time.sleep(0.1)
        found, before = held(server), found
    return found


def settled(server, before):
    """Everything is given back, sooner or later."""
    end = time.monotonic() + LIMIT
    while (found := held(server)) != before:
        assert time.monotonic() < end, (found, before)
        time.sleep(0.1)


def soak(server, seed, warm, enough):
    """Growth of memory in bytes after a warm-up of `warm` requests, and what was done."""
    before = at_rest(server)
    made = Soak(server.url, seed)
    asyncio.run(made.run(lambda: sum(made.counts.values()) >= warm))
    settled(server, before)
    start = memory(server)
    asyncio.run(made.run(lambda: enough(made)))
    settled(server, before)
    assert server.counted("http_requests_total", 'status="5') == 0
    assert server.counted("request_success_total", 'finished_reason="error"') == 0
    assert not [line for line in server.lines if "Traceback" in line], "".join(server.lines)
    return memory(server) - start, made.counts


@pytest.fixture
def server():
    """Under pressure: too few slots and pages for all who come."""
    pages = "--plugin-option=executor.echo.num_pages=400"
    made = start_server("--set", "max_num_seqs=32", root=(pages,))
    yield made
    made.kill()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_200_clients_leave_nothing_behind(server):
    growth, counts = soak(server, 1, 500, lambda made: sum(made.counts.values()) >= 1500)
    assert growth < 24 * 2**20, counts
    assert min(counts.values()) > 100
    assert server.stop() == 0


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
@pytest.mark.timeout(1800)
def test_200_clients_for_ten_minutes(server):
    end = time.monotonic() + 600
    growth, counts = soak(server, 2, 4000, lambda made: time.monotonic() > end)
    print(counts, f"{growth / 2**20:.1f} MiB")
    assert growth < 24 * 2**20, counts
    assert server.stop() == 0
