"""What the core tells of its steps beside their tokens."""

from __future__ import annotations

import pytest

from framework.testing.harness import Harness


@pytest.mark.parametrize("depth", [1, 2])
def test_waiting_times_and_computed_tokens_are_told_with_every_step(depth):
    """One slot: the second waits for the first; a preempted or chunked one waited only once."""
    now = [0.0]
    one = Harness(
        clock=lambda: now[0],
        runner={"depth": depth},
        loop_depth=depth,
        max_num_seqs=1,
        max_num_batched_tokens=4,
        enable_prefix_caching=False,
    )
    one.add("a", [1] * 6, max_tokens=4)
    now[0] = 0.5
    one.add("b", [2] * 3, max_tokens=3)
    waited, computed = {"a": [], "b": []}, 0
    while one.core.has_work():
        now[0] += 1.0
        outputs = one.step()
        computed += outputs.num_computed
        for row in range(len(outputs.waited)):
            waited[outputs.request_ids[row]].append(float(outputs.waited[row]))
    assert len(waited["a"]) == 4
    assert set(waited["a"]) == {1.5}
    assert len(waited["b"]) == 3
    [second] = set(waited["b"])
    assert second > 3.0
    # All tokens but the newest of each; at depth 2 a step may be in flight when a request ends.
    assert 6 + 3 + 3 + 2 <= computed <= 6 + 3 + 3 + 2 + 2 * (depth - 1)
