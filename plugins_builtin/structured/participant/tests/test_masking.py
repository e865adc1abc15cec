"""Of several outputs one that fails ends alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from framework.contracts.masking import MaskingParticipant
from framework.errors import IntegrityError


class Output:
    """One that fails where it is told to."""

    fault = None

    def __init__(self, fails):
        self.fails, self.taken = fails, []

    def take(self, tokens):
        if self.fails == "take":
            raise RuntimeError("no take")
        self.taken += tokens

    def fill(self, rows, drafts):
        if self.fails == "fill":
            rows[0] = 0xFF
            raise RuntimeError("no fill")
        rows[:] = 7
        return len(rows)


class Outputs(MaskingParticipant):
    def prepare(self, request):
        return SimpleNamespace(done=lambda: True, exception=lambda: None, result=lambda: None)

    def begin(self, request, prompt, made):
        if request.fails == "begin":
            raise RuntimeError("no begin")
        return Output(request.fails)


def plan_of(requests, **more):
    entering = [
        SimpleNamespace(slot=n, tokens=np.array([1, 2], np.int32), num_prompt=1) for n in requests
    ]
    return SimpleNamespace(
        admitted=entering,
        wants_logits=np.ones(len(requests), bool),
        draft_counts=np.array([1] * len(requests), np.int32),
        draft_ids=np.array([5] * len(requests), np.int32),
        num_rows=len(requests),
    )


@pytest.mark.parametrize("fails", ["begin", "take", "fill"])
def test_the_others_go_on(fails):
    requests = {n: SimpleNamespace(id=str(n), fails=fails if n == 1 else None) for n in range(3)}
    outputs = Outputs()
    outputs.start(SimpleNamespace(vocab_size=32))
    for request in requests.values():
        outputs.admit(request)
    plan = plan_of(requests)
    outputs.attach(plan, requests)
    late = outputs.late(plan, requests)
    assert late.bitmask_rows.tolist() == [0, 0, 1, 2, 2]
    assert late.covered.tolist() == [0, 1, 0, 0, 1]
    assert late.bitmask[:, 0].tolist() == [7, 7, 0, 7, 7]
    result = SimpleNamespace(token_offsets=np.arange(4), token_ids=np.array([3, 3, 3], np.int32))
    outputs.absorb(result, requests)
    for n, request in requests.items():
        if n == 1:
            with pytest.raises(IntegrityError, match=f"RuntimeError: no {fails}"):
                outputs.limit(request, 0, 1)
        else:
            assert outputs.limit(request, 0, 1) == 1
