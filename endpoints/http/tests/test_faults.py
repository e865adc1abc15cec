"""What a client is told of an engine that has ended: nothing that only its operator could do."""

from __future__ import annotations

import asyncio
import json

import pytest

from framework.engine.remote.client import closed
from framework.errors import EngineDeadError, EngineRestartingError
from framework_http.anthropic.faults import fault_item
from framework_http.faults import describe, respond
from framework_http.openai.responses import _told
from framework_http.sse import Form

DEATHS = {
    "closed": closed(),
    "dead": EngineDeadError("it hangs", expected="signs of life", found="none", mend="a new LLM"),
}


class Failing:
    """A response that keeps the message with which it failed."""

    def fail(self, message):
        yield {"error": message}


def failed_response(error):
    async def events():
        yield {}
        raise error

    async def last():
        return [event async for event in _told(events(), Failing())][-1]

    return asyncio.run(last())


TELLERS = {
    "an answer": lambda error: json.loads(respond(error).body),
    "a stream": Form().fault,
    "Anthropic's": fault_item,
    "a response": failed_response,
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("teller", TELLERS)
def test_who_asks_an_engine_that_has_ended_is_sent_elsewhere(death, teller):
    error = DEATHS[death]
    text = str(TELLERS[teller](error))
    assert error.message in text
    assert "another server" in text
    assert error.mend not in text
    assert "found:    none" in text or error.found is None


def test_who_asks_while_another_is_started_is_told_to_wait():
    status, body, headers = describe(EngineRestartingError("it died", mend="ask again later"))
    assert (status, headers) == (503, {"retry-after": "1"})
    assert "ask again later" in body["error"]["message"]
