"""A driver that makes step plans by hand, for tests of runners.

It stands where the core stands, without scheduling anything: the test says which slots
compute how many tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework.contracts.model_runner import ModelRunner
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import (
    NOTHING_LATE,
    AdmittedRequest,
    CacheGroup,
    CachePlan,
    LateInputs,
    PageUpdates,
    StepPlan,
    StepResult,
)


@dataclass
class Known:
    """What the driver knows of a request."""

    slot: int
    generation: int
    tokens: list[int]
    computed: int = 0
    pages: int = 0


ALL = SamplingParams(temperature=0.0, max_tokens=64, logprobs=-1)


@dataclass
class Driver:
    """Drives a runner with plans made by hand.  Pages are handed out in a shuffled order."""

    runner: ModelRunner
    page_tokens: int = 4
    num_pages: int = 80
    step: int = 0
    requests: dict[int, Known] = field(default_factory=dict)
    pending: dict[str, list] = field(default_factory=lambda: {"admitted": [], "released": []})

    def bind(self, info: Any) -> None:
        spec = next(iter(info.layers.values()))
        layers = tuple(info.layers)
        self.runner.bind(
            CachePlan(
                groups=(CacheGroup(spec=spec, layers=layers, page_tokens=self.page_tokens),),
                num_pages=self.num_pages,
                page_bytes=len(layers) * spec.page_bytes(self.page_tokens),
                max_pages_per_request=-(-128 // self.page_tokens),
            )
        )
        order = np.random.default_rng(0).permutation(np.arange(1, self.num_pages))
        self.free = order.tolist()

    def admit(
        self, slot: int, tokens: Sequence[int], sampling: SamplingParams = ALL, **more: Any
    ) -> None:
        generation = more.pop("generation", 1)
        self.requests[slot] = Known(slot, generation, list(tokens))
        self.pending["admitted"].append(
            AdmittedRequest(
                slot=slot,
                generation=generation,
                request_id=f"r{slot}",
                tokens=np.array(tokens, np.int32),
                num_prompt=more.pop("num_prompt", len(tokens)),
                sampling=sampling,
                seed=more.pop("seed", slot),
                **more,
            )
        )

    def release(self, slot: int) -> None:
        self.pending["released"].append((slot, self.requests.pop(slot).generation))

    def plan(
        self, *rows: tuple[int, int], drafts: Mapping[int, Sequence[int]] = {}, **more: Any
    ) -> StepPlan:
        """rows: (slot, new tokens, drafts among them).  Logits are wanted where the row ends
        at what the driver knows, or beyond with tokens still in flight."""
        self.step += 1
        wants, computed, updates = [], [], []
        for slot, new in rows:
            own = self.requests[slot]
            computed.append(own.computed)
            end = own.computed + new
            wants.append(end >= len(own.tokens))
            need = -(-end // self.page_tokens)
            taken = [self.free.pop() for _ in range(max(0, need - own.pages))]
            updates.append((slot, own.pages, taken, own.pages == 0))
            own.pages = max(own.pages, need)
            own.computed = end - len(drafts.get(slot, ()))
        ids = [page for _, _, taken, _ in updates for page in taken]
        pages = PageUpdates(
            slots=np.array([u[0] for u in updates], np.int32),
            starts=np.array([u[1] for u in updates], np.int32),
            counts=np.array([len(u[2]) for u in updates], np.int32),
            ids=np.array(ids, np.int32),
            replace=np.array([u[3] for u in updates], np.bool_),
        )
        plan = StepPlan(
            step_id=self.step,
            slots=np.array([slot for slot, _ in rows], np.int32),
            generations=np.array([self.requests[slot].generation for slot, _ in rows], np.int32),
            num_new=np.array([new for _, new in rows], np.int32),
            computed=np.array(computed, np.int32),
            wants_logits=np.array(wants, np.bool_),
            admitted=tuple(self.pending["admitted"]),
            released=tuple(self.pending["released"]),
            pages=(pages,),
            draft_counts=np.array([len(drafts.get(slot, ())) for slot, _ in rows], np.int32),
            draft_ids=np.array(
                [token for slot, _ in rows for token in drafts.get(slot, ())], np.int32
            ),
            features=frozenset(("drafts",)) if drafts else frozenset(),
            **more,
        )
        self.pending = {"admitted": [], "released": []}
        return plan

    def run(
        self,
        *rows: tuple[int, int],
        drafts: Mapping[int, Sequence[int]] = {},
        late: LateInputs = NOTHING_LATE,
        **more: Any,
    ) -> StepResult:
        """One step at depth 1; the driver's requests move on."""
        plan = self.plan(*rows, drafts=drafts, **more)
        result = self.runner.finish(self.runner.submit(plan), late)
        self.absorb(plan, result)
        return result

    def absorb(self, plan: StepPlan, result: StepResult) -> None:
        for row, slot in enumerate(plan.slots.tolist()):
            own = self.requests.get(slot)
            if own is not None:
                low, high = result.token_offsets[row : row + 2]
                own.tokens += result.token_ids[low:high].tolist()
                own.computed += int(result.accepted[row])

    def generate(self, slot: int, count: int) -> list[int]:
        """`count` tokens by plain decode steps."""
        start = len(self.requests[slot].tokens)
        while len(self.requests[slot].tokens) < start + count:
            self.run((slot, len(self.requests[slot].tokens) - self.requests[slot].computed))
        return self.requests[slot].tokens[start:]
