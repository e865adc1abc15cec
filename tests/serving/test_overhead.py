"""What a server adds to the engine: measured, and printed with `-s`."""

from __future__ import annotations

import os

import pytest

from framework.testing.served import start_server
from tests.serving.overhead import ROOT, measure


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_one_front_end_carries_thousands_of_tokens_a_second():
    """In its own processor time, whatever else the machine does: 5000 a second are 200 us each."""
    server = start_server(root=ROOT)
    try:
        found = measure(server)
    finally:
        server.kill()
    print(found)
    assert found["front_end_us_per_token"] < 200
