"""Who is named when no token can be chosen: the processor that spoilt the logits, or the model."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0)


class Spoils(LogitsProcessor):
    """Writes `value` over the whole row of slot 1, or raises if there are other rows too."""

    def __init__(self, value, alone=False):
        super().__init__()
        self.value, self.alone = value, alone

    def admit(self, request):
        pass

    def drop(self, slot):
        pass

    def apply(self, logits, slots, outputs):
        if self.alone and len(slots) > 1:
            raise RuntimeError("one at a time")
        if self.value is not None:
            logits[np.flatnonzero(slots == 1)] = self.value


class Bystander(Spoils):
    def __init__(self):
        super().__init__(None)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "wrote logits that are not numbers"), (np.inf, "not numbers"), (-np.inf, "forbids")],
)
def test_the_processor_that_spoils_a_row_is_named_and_no_other(make_bench, value, words, alone):
    processors = [Bystander(), Spoils(value, alone), Bystander()]
    bench = make_bench(5, processors=processors)
    for slot in range(3):
        bench.admit(slot, GREEDY)
    output = bench.sample([0, 1, 2], np.tile(np.arange(5.0), (3, 1)))
    assert list(output.errors) == [1]
    assert "Spoils" in output.errors[1]
    assert words in output.errors[1]
    assert "model" not in output.errors[1]
    assert output.token_ids.tolist() == [4, 0, 4]


def test_what_was_broken_before_is_no_processors_fault(make_bench):
    bench = make_bench(4, processors=[Bystander(), Spoils(np.nan)])
    bench.admit(0, GREEDY)
    bench.admit(1, GREEDY.replace(allowed_token_ids=[0]))
    logits = np.array([[np.nan, 1, 2, 3], [-np.inf, 1, 2, 3]])
    output = bench.sample([0, 1], logits)
    assert "the model's logits" in output.errors[0]
    assert sorted(output.errors) == [0, 1]
    assert "Spoils" not in output.errors[1]
