"""Which graph serves a step."""

from __future__ import annotations

import pytest

from framework.errors import ConfigError
from framework_torch.graphs.dispatch import BatchDescriptor, Dispatcher, usual_sizes
from framework_torch.graphs.modes import MODES, Mode, agreed, least, wanted

SIZES = (1, 2, 4, 8, 16)


def dispatcher(mode, uniform=(1,), max_tokens=16, max_requests=6):
    return Dispatcher(MODES[mode], SIZES, uniform, max_tokens, max_requests)


def served(found, tokens, requests, uniform=0, adapters=False):
    mode, key = found.dispatch(BatchDescriptor(tokens, requests, uniform, adapters))
    return mode, key.tokens, key.requests, key.uniform


def test_a_uniform_step_is_whole_and_a_mixed_one_in_parts():
    found = dispatcher("full_and_piecewise")
    assert served(found, 3, 3, 1) == (Mode.FULL, 4, 4, 1)
    assert served(found, 9, 3) == (Mode.PIECEWISE, 16, 0, 0)
    assert served(found, 16, 1, 16) == (Mode.PIECEWISE, 16, 0, 0)
    assert served(found, 17, 3) == (Mode.NONE, 17, 3, 0)


def test_the_largest_uniform_step_has_a_graph_though_it_is_no_usual_size():
    assert served(dispatcher("full_and_piecewise"), 5, 5, 1) == (Mode.FULL, 6, 6, 1)
    assert served(dispatcher("full_and_piecewise"), 6, 6, 1) == (Mode.FULL, 6, 6, 1)


def test_a_batch_smaller_than_all_sizes_has_a_graph():
    found = Dispatcher(MODES["full_decode_only"], (8,), (1,), 16, 4)
    assert served(found, 3, 3, 1) == (Mode.FULL, 4, 4, 1)


def test_drafts_make_uniform_steps_of_their_own():
    found = dispatcher("full_decode_only", uniform=(1, 4))
    assert served(found, 12, 3, 4) == (Mode.FULL, 16, 4, 4)
    assert served(found, 3, 3, 1) == (Mode.FULL, 4, 4, 1)
    assert served(found, 6, 3, 2) == (Mode.NONE, 6, 3, 2)


def test_full_serves_mixed_steps_by_their_tokens():
    found = dispatcher("full")
    assert served(found, 9, 3) == (Mode.FULL, 16, 6, 0)
    assert served(found, 3, 2) == (Mode.FULL, 4, 4, 0)
    assert served(found, 3, 3, 1) == (Mode.FULL, 4, 4, 1)


@pytest.mark.parametrize("mode", MODES)
def test_every_graph_is_large_enough_and_was_captured(mode):
    found = dispatcher(mode, uniform=(1, 3))
    captured = list(found.graphs())
    assert len(set(captured)) == len(captured)
    for tokens in range(1, 20):
        for requests in range(1, min(tokens, 6) + 1):
            uniform = tokens // requests if tokens % requests == 0 else 0
            step = BatchDescriptor(tokens, requests, uniform)
            kind, key = found.dispatch(step)
            if kind is Mode.NONE:
                assert key == step
                continue
            assert (kind, key) in captured
            assert key.tokens >= tokens
            assert kind is Mode.PIECEWISE or key.requests >= requests
            assert key.uniform in (0, uniform)
            wanted_mode = MODES[mode].uniform if uniform in (1, 3) else MODES[mode].mixed
            assert kind <= max(wanted_mode, MODES[mode].mixed)


def test_graphs_are_captured_from_the_largest_on():
    captured = list(dispatcher("full_and_piecewise").graphs())
    for mode in (Mode.FULL, Mode.PIECEWISE):
        sizes = [key.tokens for kind, key in captured if kind is mode]
        assert sizes == sorted(sizes, reverse=True)
    assert list(dispatcher("none").graphs()) == []


def test_steps_with_adapters_have_no_graph():
    found = dispatcher("full_and_piecewise")
    assert served(found, 3, 3, 1, adapters=True) == (Mode.NONE, 3, 3, 1)


def test_usual_sizes_end_with_the_step():
    assert usual_sizes(7) == (1, 2, 4)
    assert usual_sizes(2048)[-1] == 512
    assert len(usual_sizes(2048)) < 60


def test_layers_that_differ_take_the_least():
    assert least(("always", "decode", "uniform")) == "decode"
    assert least(("always", "none")) == "none"


@pytest.mark.parametrize(
    ("mode", "support", "found"),
    [
        ("full_and_piecewise", "none", "piecewise"),
        ("full_and_piecewise", "decode", "full_and_piecewise"),
        ("full", "uniform", "piecewise"),
        ("full", "always", "full"),
        ("piecewise", "none", "piecewise"),
        ("none", "none", "none"),
    ],
)
def test_what_attention_cannot_keep_up_with_is_told_or_refused(mode, support, found):
    name, why = agreed(mode, support, named=False)
    assert name == found
    assert (why == "") == (name == mode)
    if name == mode:
        assert agreed(mode, support, named=True) == (mode, "")
    else:
        with pytest.raises(ConfigError, match="graph_mode"):
            agreed(mode, support, named=True)


def test_levels_and_eagerness_decide_where_nobody_named_a_mode():
    able = {"eager": False, "able": True}
    assert wanted("auto", "plain", **able) == "none"
    assert wanted("auto", "fused", **able) == "piecewise"
    assert wanted("auto", "best", **able) == "full_and_piecewise"
    assert wanted("auto", "best", eager=True, able=True) == "none"
    assert wanted("auto", "best", eager=False, able=False) == "none"
    assert wanted("full", "plain", **able) == "full"
    for unable in ({"eager": True, "able": True}, {"eager": False, "able": False}):
        with pytest.raises(ConfigError, match="graph_mode='full'"):
            wanted("full", "best", **unable)
