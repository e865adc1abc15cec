"""The statistics of an engine without a server, on a port of their own."""

from __future__ import annotations

import logging
import re
import socket
from urllib.request import urlopen

import pytest

from framework import LLM, SamplingParams
from framework.errors import ConfigError
from framework.testing.conformance.suites.stat_logger import StatLoggerSuite
from framework.testing.fake_model import MODEL, fake_plugins


class TestPrometheus(StatLoggerSuite):
    plugin = "stat_logger:prometheus"


def engine(**options):
    return LLM(
        MODEL, plugins=fake_plugins(), executor="echo", stat_loggers=["prometheus"], **options
    )


def test_whoever_asks_gets_the_names_of_vllm_behind_our_prefix(caplog):
    with caplog.at_level(logging.WARNING):
        llm = engine()
    (address,) = re.findall(r"metrics on (\S+)", caplog.text)
    llm.generate("hello", SamplingParams(max_tokens=3), use_tqdm=False)
    with urlopen(address, timeout=60) as answer:
        text = answer.read().decode()
    llm.close()
    assert "framework:prompt_tokens_total 5.0" in text
    assert "framework:generation_tokens_total 3.0" in text
    with pytest.raises(OSError):
        urlopen(address, timeout=60)


def test_an_address_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="cannot listen"):
            engine(plugin_options={"stat_logger.prometheus.port": port})
