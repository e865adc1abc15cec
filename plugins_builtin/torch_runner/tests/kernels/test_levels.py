"""What the platform may prefer at each level, and what beats that."""

from __future__ import annotations

import pytest

from framework.contracts.platform import Platform
from framework.plugins.registry import PluginRegistry
from framework.plugins.sets import within
from framework_torch.ranking import ranked
from framework_torch.runner import TorchRunner

RANKED = ("fp16_packed", "fused_norm", "plain", "unheard-of")


class Preferring(Platform):
    """A platform that prefers what rounds weights."""

    detect = facts = prepare = cache_budget = None  # type: ignore[assignment]

    def ranking(self, kind):
        return RANKED if kind == "kernel" else ("cpu_paged", "sdpa")


Preferring.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    ("limit", "kernels", "attention"),
    [
        ("plain", ("plain",), ("sdpa",)),
        ("fused", ("fused_norm", "plain"), ("cpu_paged", "sdpa")),
        ("best", RANKED, ("cpu_paged", "sdpa")),
    ],
)
def test_a_set_has_those_before_it(tiny, context, limit, kernels, attention) -> None:
    own, platform = context(tiny("llama").files, kernel_set=limit), Preferring()
    assert ranked(own, platform, "kernel") == kernels
    assert ranked(own, platform, "attention_backend") == attention


def test_every_kernel_and_attention_backend_says_its_set() -> None:
    """One that does not is of the last, which would keep it from -O0 and -O1 unseen."""
    registry = PluginRegistry()
    for kind in ("kernel", "attention_backend"):
        for record in registry.records(kind):
            if record.first_party:
                assert record.facts is not None
                assert "set" in record.facts.facts, record.key


def test_a_third_party_that_says_nothing_is_of_the_last() -> None:
    class Records:
        def records(self, kind):
            return []

    assert within(Records(), "kernel", ("theirs",), "fused") == ()  # type: ignore[arg-type]
    assert within(Records(), "kernel", ("theirs",), "best") == ("theirs",)  # type: ignore[arg-type]


def test_the_plain_level_runs_on_plain_attention_unless_one_is_named(tiny, context) -> None:
    pytest.importorskip("framework_cpu_paged._native")
    files, choices = tiny("llama", head_dim=16).files, {"platform": "cpu"}

    def served(**changes):
        notes = TorchRunner().load(context(files, **changes)).notes
        return next(note for note in notes if note.startswith("attention: "))

    assert "sdpa" in served(kernel_set="plain", choices=choices)
    assert "cpu_paged" in served(kernel_set="best", choices=choices)
    named = {**choices, "attention_backend": "cpu_paged"}
    assert "cpu_paged" in served(kernel_set="plain", choices=named)


def test_the_start_line_says_why_the_preferred_attention_does_not_serve(tiny, context) -> None:
    pytest.importorskip("framework_cpu_paged")

    def lines(**changes):
        notes = TorchRunner().load(context(tiny("llama", head_dim=8).files, **changes)).notes
        return [note for note in notes if note.startswith("attention: ")]

    first, why = lines(choices={"platform": "cpu"})
    assert first.startswith("attention: sdpa, ")
    assert why.startswith("attention: cpu_paged cannot serve: ")
    assert "head_size_v" in why
    assert "a multiple of 16" in why
    named = {"platform": "cpu", "attention_backend": "sdpa"}
    assert len(lines(choices=named)) == 1
    assert len(lines(choices={"platform": "cpu"}, kernel_set="plain")) == 1
