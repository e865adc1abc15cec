"""A driver that makes step plans by hand, for tests of runners.

It stands where the core stands, without scheduling anything: the test says which slots
compute how many tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.contracts.model_runner import ModelRunner
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import (
    NOTHING_LATE,
    AdmittedRequest,
    CacheGroup,
    CacheLayoutName,
    CachePlan,
    LateInputs,
    PageUpdates,
    RunnerInfo,
    StepPlan,
    StepResult,
)
from framework.core.kv.managers import BUILT_IN, manager_for


@dataclass
class Known:
    """What the driver knows of a request.  pages: its table in each group; 0 where a page was
    given back.  told: the runner has the table."""

    slot: int
    generation: int
    tokens: list[int]
    computed: int = 0
    pages: list[list[int]] = field(default_factory=list)
    told: bool = False


# Slot, first index, page ids from there on, whether the row is emptied first.
Update = tuple[int, int, list[int], bool]


def page_updates(updates: Sequence[Update]) -> PageUpdates:
    """Of one group, as a plan has them."""
    return PageUpdates(
        slots=np.array([update[0] for update in updates], np.int32),
        starts=np.array([update[1] for update in updates], np.int32),
        counts=np.array([len(update[2]) for update in updates], np.int32),
        ids=np.array([page for update in updates for page in update[2]], np.int32),
        replace=np.array([update[3] for update in updates], np.bool_),
    )


ALL = SamplingParams(temperature=0.0, max_tokens=64, logprobs=-1)


MANAGERS = tuple(make() for make in BUILT_IN)


@dataclass
class Driver:
    """Drives a runner with plans made by hand.

    Layers with equal specs form a group; all groups take their pages from one pool, in a
    shuffled order, and give back what the manager of their spec says.
    page_tokens: of each group in order, or of all.  lookahead: tokens past those of a step for
    which there are pages, too; what the runner asks for.
    """

    runner: ModelRunner
    page_tokens: int | Sequence[int] = 4
    num_pages: int = 160
    layout: CacheLayoutName = "page_outermost"
    step: int = 0
    requests: dict[int, Known] = field(default_factory=dict)
    pending: dict[str, list[Any]] = field(default_factory=lambda: {"admitted": [], "released": []})
    groups: tuple[CacheGroup, ...] = ()
    lookahead: int = 0

    def bind(self, info: RunnerInfo) -> None:
        """Bind the runner to a cache of `num_pages` pages."""
        self.lookahead = info.lookahead
        named: dict[KVCacheSpec, list[str]] = {}
        for layer, spec in info.layers.items():
            named.setdefault(spec, []).append(layer)
        sizes = self.page_tokens
        sizes = [sizes] * len(named) if isinstance(sizes, int) else sizes
        self.groups = tuple(
            CacheGroup(spec=spec, layers=tuple(layers), page_tokens=size)
            for (spec, layers), size in zip(named.items(), sizes, strict=True)
        )
        slab = max(group.spec.page_bytes(group.page_tokens) for group in self.groups)
        self.runner.bind(
            CachePlan(
                groups=self.groups,
                num_pages=self.num_pages,
                page_bytes=slab * max(len(group.layers) for group in self.groups),
                slab_bytes=slab,
                max_pages_per_request=-(-128 // min(sizes)),
                layout=self.layout,
            )
        )
        order = np.random.default_rng(0).permutation(np.arange(1, self.num_pages))
        self.free = order.tolist()

    def admit(
        self,
        slot: int,
        tokens: Sequence[int],
        sampling: SamplingParams | None = ALL,
        *,
        generation: int = 1,
        computed: int = 0,
        pages: Sequence[Sequence[int]] = (),
        **more: Any,
    ) -> None:
        """A request enters `slot` with the next plan.  computed, pages: tokens that lie in the
        cache already, and where; more: fields of `AdmittedRequest`."""
        tables = [list(table) for table in pages]
        self.requests[slot] = Known(slot, generation, list(tokens), computed, tables)
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
        """The request leaves with the next plan, and gives its pages back."""
        own = self.requests.pop(slot)
        self.pending["released"].append((slot, own.generation))
        self.free += [page for table in own.pages for page in table if page]

    def plan(
        self, *rows: tuple[int, int], drafts: Mapping[int, Sequence[int]] = {}, **more: Any
    ) -> StepPlan:
        """rows: (slot, new tokens, drafts among them).  Logits are wanted where the row ends
        at what the driver knows, or beyond with tokens still in flight."""
        self.step += 1
        wants, computed = [], []
        updates: list[list[Update]] = [[] for _ in self.groups]
        for slot, new in rows:
            own = self.requests[slot]
            computed.append(own.computed)
            end = own.computed + new
            wants.append(end >= len(own.tokens))
            fresh, own.told = not own.told, True
            own.pages = own.pages or [[] for _ in self.groups]
            ahead = end + self.lookahead
            for index, group in enumerate(self.groups):
                updates[index] += self._table(own, group, own.pages[index], ahead, fresh)
            own.computed = end - len(drafts.get(slot, ()))
        plan = StepPlan(
            step_id=self.step,
            slots=np.array([slot for slot, _ in rows], np.int32),
            generations=np.array([self.requests[slot].generation for slot, _ in rows], np.int32),
            num_new=np.array([new for _, new in rows], np.int32),
            computed=np.array(computed, np.int32),
            wants_logits=np.array(wants, np.bool_),
            admitted=tuple(self.pending["admitted"]),
            released=tuple(self.pending["released"]),
            pages=tuple(map(page_updates, updates)),
            draft_counts=np.array([len(drafts.get(slot, ())) for slot, _ in rows], np.int32),
            draft_ids=np.array(
                [token for slot, _ in rows for token in drafts.get(slot, ())], np.int32
            ),
            features=frozenset(("drafts",)) if drafts else frozenset(),
            **more,
        )
        self.pending = {"admitted": [], "released": []}
        return plan

    def _table(
        self, own: Known, group: CacheGroup, table: list[int], end: int, fresh: bool
    ) -> list[Update]:
        """Give back what no token from `computed` on reads, then take pages up to `end`."""
        updates: list[Update] = []
        manager = manager_for(group.spec, MANAGERS)
        start, stop = manager.droppable(own.computed, group.page_tokens, group.spec)
        gone = [index for index in range(start, min(stop, len(table))) if table[index]]
        if gone:
            self.free += [table[index] for index in gone]
            end_gone = gone[-1] + 1
            table[gone[0] : end_gone] = [0] * (end_gone - gone[0])
            updates.append((own.slot, gone[0], [0] * (end_gone - gone[0]), False))
        held, need = len(table), -(-end // group.page_tokens)
        table += [self.free.pop() for _ in range(max(0, need - held))]
        if fresh:
            return [(own.slot, 0, list(table), True)]
        return [*updates, (own.slot, held, table[held:], False)]

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
        """The driver's requests learn what a step brought."""
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
