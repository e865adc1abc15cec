"""A backend that hangs or dies costs its own grammar, and no other."""

from __future__ import annotations

import pytest

from framework.contracts.participant import EngineContext
from framework.contracts.structured_output import Grammar, Vocabulary
from framework.errors import InputError, PluginError, UnsupportedError
from framework.plugins.registry import PluginRegistry
from framework_structured.options import StructuredOptions
from framework_structured.workers import Workers

ODD = '''
import os, time
from framework.contracts.structured_output import Coverage, StructuredOutput
from framework.errors import InputError

class Odd(StructuredOutput):
    """Does what the grammar says."""

    coverage = Coverage(structures=frozenset(("regex",)))

    def check(self, grammar):
        print("noise on standard output")
        if grammar.text == "hang":
            time.sleep(600)
        if grammar.text == "die":
            os._exit(3)
        if grammar.text == "wrong":
            raise InputError("it is wrong", parameter="structured_outputs")
        if grammar.text == "fail":
            raise RuntimeError("oops")

    def compile(self, grammar, vocabulary):
        self.check(grammar)
        return b"".join(vocabulary.tokens)

    def load(self, compiled, vocabulary):
        raise NotImplementedError
'''


@pytest.fixture
def workers(tmp_path, monkeypatch):
    (tmp_path / "odd_backend.py").write_text(ODD)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = PluginRegistry(ad_hoc={"structured_output:odd": "odd_backend:Odd"})
    context = EngineContext(registry=registry, choices={}, load_tokenizer=lambda: None)
    options = StructuredOptions(check_timeout=5.0, compile_timeout=60.0, workers=1)
    made = Workers(context, options, lambda: Vocabulary(tokens=(b"a", b"b"), eos_ids=(0,)))
    yield made
    made.close()


def test_what_hangs_or_dies_is_refused_and_the_next_is_served(workers):
    for ask, text in ((workers.check, "hang"), (workers.check, "die"), (workers.compile, "die")):
        with pytest.raises(UnsupportedError, match="too complex"):
            ask("odd", Grammar("regex", text))
        workers.check("odd", Grammar("regex", "fine"))
        assert workers.compile("odd", Grammar("regex", "fine")) == b"ab"


def test_what_a_backend_says_is_told(workers):
    with pytest.raises(InputError, match="it is wrong"):
        workers.check("odd", Grammar("regex", "wrong"))
    with pytest.raises(PluginError, match="'odd' failed: RuntimeError: oops"):
        workers.check("odd", Grammar("regex", "fail"))


def test_after_the_end_nothing_is_begun(workers):
    workers.check("odd", Grammar("regex", "fine"))
    workers.close()
    with pytest.raises(UnsupportedError, match="ends"):
        workers.check("odd", Grammar("regex", "fine"))
