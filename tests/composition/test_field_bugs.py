"""Faults that came back in engines like this one, where structured output meets other features."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from framework import SamplingParams
from framework.contracts.proposer import SpeculativeProposer
from framework.errors import InputError, UnsupportedError
from tests.composition.acts import Run
from tests.composition.models import Engines
from tests.composition.reference import EOS

PROMPTS = [[40, 65, 12], [3, 1, 4, 1, 5]]
ASKED = (
    {"regex": "(ab|cd){2,5}[.]?"},
    {"choice": ["no", "not", "nothing", "nothing at all"]},
)
DRAFTS = 4


class Diverts(SpeculativeProposer):
    """Proposes what comes without drafts, but for one draft: that at `place` is `wrong`."""

    whole: ClassVar[list[list[int]]] = []
    place: ClassVar[int] = 0
    wrong: ClassVar[int] = EOS

    def propose(self, step):
        return [
            self._drafts(step.known(row).tolist(), step.wanted[row]) for row in range(len(step))
        ]

    def _drafts(self, known, wanted):
        right = next((one for one in self.whole if one[: len(known)] == known), [])
        drafts = right[len(known) : len(known) + wanted]
        drafts[self.place : self.place + 1] = [self.wrong]
        return drafts[:wanted]


@pytest.fixture(scope="module")
def params() -> list[SamplingParams]:
    return [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=16, structured_outputs=asked)
        for seed in range(2)
        for asked in ASKED
    ]


@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=pytest.mark.long)])
def test_field_bug_20_text_under_a_grammar_is_that_without_drafts(
    engines: Engines, params: list[SamplingParams], depth: int
) -> None:
    """Drafts are refused at each place, an end of sequence among them, and text goes on behind."""
    prompts = [prompt for prompt in PROMPTS for _ in ASKED]
    backend = {"structured_output": "llguidance"}
    plain = Run(engines.get(backend)).answers(prompts, params)
    Diverts.whole = [[*prompt, *a.token_ids[0]] for prompt, a in zip(prompts, plain, strict=True)]
    fast = engines.get(
        {
            **backend,
            "loop_depth": depth,
            "plugins": {"speculative_proposer:diverts": f"{__name__}:Diverts"},
            "speculative_config": {"method": "diverts", "num_speculative_tokens": DRAFTS},
        }
    )
    for wrong in (EOS, 0):
        for place in range(DRAFTS + 1):  # the last time all are right
            Diverts.place, Diverts.wrong = place, wrong
            before = fast.stats
            found = Run(fast).answers(prompts, params)
            assert [one.told for one in found] == [one.told for one in plain], (place, wrong)
            accepted = sum(fast.stats.accepted) - sum(before.accepted)
            if place:
                assert accepted > 0
            else:  # the end is right once, where the output ends
                assert accepted <= (len(params) if wrong == EOS else 0)
            assert fast.stats.drafts - before.drafts > accepted or place == DRAFTS


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": 3}
    for number in range(levels):
        schema = {"oneOf": [{"type": "integer", "minimum": number, "maximum": number}, schema]}
    return schema


@pytest.mark.parametrize(
    "asked",
    [
        {"json": {"type": "nothing"}},
        {"json": deep(16)},
        {"json": deep(100)},
        {"grammar": " "},
        {"grammar": 'root ::= root "a"'},
        {"choice": []},
        {"regex": "a\0"},
        {"regex": "((a{1,99}){1,99}){1,99}"},
    ],
    ids=lambda asked: f"{next(iter(asked))} {str(next(iter(asked.values())))[:24]!r}",
)
def test_field_bug_19_a_grammar_that_fails_costs_its_own_request_alone(
    engines: Engines, asked: dict[str, Any]
) -> None:
    """It is refused, or served, or ends with an error; whoever runs beside it does not notice."""
    llm = engines.get({"structured_output": "llguidance"})
    usual = SamplingParams(temperature=0.0, max_tokens=12)
    [alone] = Run(llm).answers([PROMPTS[0]], [usual])
    own = usual.replace(structured_outputs=asked)
    try:
        [beside, strange] = Run(llm).answers([PROMPTS[0], PROMPTS[1]], [usual, own])
    except (InputError, UnsupportedError):
        [beside] = Run(llm).answers([PROMPTS[0]], [usual])
    else:
        assert strange.reasons[0][0] in ("stop", "length", "error")
    assert beside.told == alone.told
