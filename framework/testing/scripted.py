"""A model runner without a model: it emits given tokens, and checks every plan.

It keeps what a real cache would hold: for each page and offset a fingerprint of all tokens
up to there.  Before a step it compares what the page tables point at with what must lie
there, so that a wrong page, a stale hit or a page shared by two writers is an error and not
just another token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from framework.contracts.base import check_features, features_of
from framework.contracts.kv_cache_spec import (
    CacheManagerType,
    EncoderOnlySpec,
    FullAttentionSpec,
    KVCacheSpec,
)
from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.step import (
    F32,
    CachePlan,
    LateInputs,
    PromptLogprobs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)
from framework.core.kv.groups import divide
from framework.core.kv.managers import BUILT_IN
from framework.errors import IntegrityError, UnsupportedError
from framework.testing.fake_cache import FakeCache
from framework.testing.masks import Masks
from framework.testing.occupant import EMBEDS, WIDTH, Occupant, content_of
from framework.testing.ragged import ragged
from framework.testing.scores import logprobs_of, prompt_logprobs_of
from framework.testing.scripts import Drafter, Script, by_fingerprint, fingerprint, vector_of

OPS = frozenset(("sleep", "wake"))


class ScriptedRunner(ModelRunner):
    """script: (request, position, fingerprint before it) -> token.  depth: steps in flight.
    delay: seconds that a step takes.  drafter: proposes drafts from the tokens so far.
    num_pages: pages that fit, of `page_tokens` tokens.  fail_rows: (step, row) -> sentence.
    lose_pages: step -> pages that lose what they hold when it ends, which it reports; a row that
    reads them later is an error.  managers: cache manager types beside the built-in ones.
    attachments: what worker halves of participants say after a step.  worker: stands for such
    halves; called when the requests of a plan are in their slots, before anything is computed.
    keep_steps: `plans` and `lates` hold what every step was given; else they stay empty, so that a
    server may run on it for days.  embedding_size: of the vectors that it makes of prompts; None:
    it makes none.  class_labels: by which it tells them apart.  With either and layers that keep
    nothing it samples nothing and wants whole prompts, as an encoder does.
    features: with "structured_outputs" it keeps to masks.

    steps: how many were submitted.  weights: stands for the model's weights; with another number
    what a page was filled with before is wrong.  asleep: the level of sleep; what the cache held is
    gone when it ends.  Steps are computed when they are finished, as on a device behind the host.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        vocab_size: int = 1000,
        num_pages: int = 64,
        page_tokens: int = 4,
        max_model_len: int | None = None,
        layers: Mapping[str, KVCacheSpec] | None = None,
        depth: int = 2,
        delay: float = 0.0,
        drafter: Drafter | None = None,
        features: frozenset[str] = frozenset(("logprobs", "prompt_logprobs", "drafts", EMBEDS)),
        fail_rows: Mapping[tuple[int, int], str] | None = None,
        lose_pages: Mapping[int, Sequence[int]] | None = None,
        managers: Sequence[CacheManagerType] = (),
        attachments: Callable[[StepPlan], Mapping[str, bytes]] | None = None,
        worker: Callable[[StepPlan], None] | None = None,
        keep_steps: bool = False,
        embedding_size: int | None = None,
        class_labels: Sequence[str] = (),
    ) -> None:
        super().__init__()
        spec = FullAttentionSpec(num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32")
        self.layers = dict(layers or {"layer.0": spec})
        nothing_kept = all(isinstance(spec, EncoderOnlySpec) for spec in self.layers.values())
        self.class_labels = tuple(class_labels)
        pools = embedding_size is not None or bool(self.class_labels)
        self.encodes = pools and nothing_kept
        self.script = script or by_fingerprint(vocab_size)
        self.vocab_size, self.num_pages, self.page_tokens = vocab_size, num_pages, page_tokens
        self.max_model_len, self.depth, self.delay = max_model_len, depth, delay
        self.drafter, self.embedding_size = drafter, embedding_size
        self.features = features | ({"pooling"} if pools else set())
        self.features |= {"classification"} if self.class_labels else set()
        self.fail_rows, self.lose_pages = fail_rows or {}, lose_pages or {}
        self.managers, self.attachments, self.worker = managers, attachments, worker
        self.keep_steps, self.steps, self.weights = keep_steps, 0, 1
        self.plans: list[StepPlan] = []
        self.lates: list[LateInputs] = []
        self.asleep, self.closed, self._bound = 0, False, False
        self._occupants: dict[int, tuple[int, Occupant]] = {}
        self._waiting: list[StepPlan] = []
        self._masks = Masks()

    def info(self) -> RunnerInfo:
        """What `load` tells, without a context."""
        managers = (*(make() for make in BUILT_IN), *self.managers)
        division = divide(self.layers, self.page_tokens, managers)
        return RunnerInfo(
            layers=self.layers,
            page_tokens=(self.page_tokens,),
            bytes_free=self.num_pages * division.slab_bytes * division.places,
            vocab_size=self.vocab_size,
            features=self.features,
            embedding_size=self.embedding_size,
            class_labels=self.class_labels,
            prompt_embeds=WIDTH if EMBEDS in self.features else None,
            generates=not self.encodes,
            whole_prompts=self.encodes,
            max_loop_depth=self.depth,
            max_model_len=self.max_model_len,
            control_ops=OPS,
            notes=("scripted runner: tokens come from a script",),
        )

    def load(self, context: RunnerContext) -> RunnerInfo:
        return self.info()

    def bind(self, plan: CachePlan) -> None:
        self.cache, self._bound = FakeCache(plan, self.managers), True

    def submit(self, plan: StepPlan) -> Ticket:
        if len(self._waiting) >= self.depth:
            raise IntegrityError("more steps in flight than declared", found=len(self._waiting) + 1)
        if silent := features_of(plan) - plan.features:
            raise IntegrityError("the plan does not say what it uses", found=silent)
        check_features(self, plan.used(), self.features)
        if not self._bound or self.closed or self.asleep:
            raise IntegrityError("steps are computed after `bind`, before `close`, awake")
        self.steps += 1
        if self.keep_steps:
            self.plans.append(plan)
        self._waiting.append(plan)
        return Ticket(plan.step_id, time.monotonic() + self.delay)

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        if not self._waiting or self._waiting[0].step_id != ticket.step_id:
            raise IntegrityError("steps are finished out of order", found=ticket.step_id)
        plan = self._waiting.pop(0)
        if self.delay:
            time.sleep(max(0.0, float(ticket.payload) - time.monotonic()))  # type: ignore[arg-type]
        if self.keep_steps:
            self.lates.append(late)
        self._enter(plan)
        if self.worker is not None:
            self.worker(plan)
        self._masks = Masks(plan, late)
        return self._compute(plan)

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if op not in OPS:
            raise UnsupportedError(f"the scripted runner has no operation {op!r}")
        if self._waiting or not self._bound or self.closed:
            raise IntegrityError(f"{op!r} while steps are in flight, or before `bind`")
        if op == "sleep":
            self.asleep = int(arguments["level"])
        elif self.asleep:
            self.asleep = 0
            self._occupants.clear()
            self.bind(self.cache.plan)
        return {}

    def close(self) -> None:
        self.closed = True

    # One step

    def _enter(self, plan: StepPlan) -> None:
        for slot, generation in plan.released:
            if self._occupants.get(slot, (None,))[0] == generation:
                del self._occupants[slot]
        for request in plan.admitted:
            if request.slot in self._occupants:
                raise IntegrityError("a request was put into a slot that is taken")
            occupant = Occupant(request, self.weights)
            self._occupants[request.slot] = (request.generation, occupant)
        self.cache.apply(plan.pages, plan.kv_ops)
        for request in plan.admitted:
            if request.encoder_tokens:
                self.cache.encode(request.slot, content_of(request), request.encoder_tokens)

    def _compute(self, plan: StepPlan) -> StepResult:
        tokens: list[list[int]] = []
        accepted, drafts, parts, errors, vectors = [], [], [], {}, {}
        draft_ends = np.cumsum(plan.draft_counts)
        for row in range(plan.num_rows):
            first = draft_ends[row] - plan.draft_counts[row]
            given = plan.draft_ids[first : draft_ends[row]].tolist()
            slot, computed = int(plan.slots[row]), int(plan.computed[row])
            held = self._occupants.get(slot)
            if held is None or held[0] != plan.generations[row]:
                raise IntegrityError("a row names a request that is not in its slot", found=slot)
            occupant = held[1]
            if len(occupant.tokens) < computed + plan.num_new[row] - len(given):
                # The request was preempted or ended while this step was in flight.
                raise IntegrityError("a row has tokens that were never known", found=slot)
            if occupant.problem is None:  # else nothing of it is computed, and it ends
                self._attend(slot, occupant, computed, int(plan.num_new[row]), given)
            parts += self._score(row, occupant, computed, int(plan.num_new[row]))
            new = self._sample(occupant, given) if plan.wants_logits[row] else []
            tokens.append(new)
            accepted.append(max(len(new) - 1, 0))
            drafts.append(self._draft(occupant, plan.drafts_wanted) if new else [])
            if plan.rows_to_pool is not None and plan.rows_to_pool[row]:
                vectors[row] = self._pool(occupant, computed + int(plan.num_new[row]))
            if problem := self.fail_rows.get((plan.step_id, row)) or occupant.problem:
                errors[row] = problem
        ids, offsets = ragged(tokens)
        draft_ids, draft_offsets = ragged(drafts)
        occupants = [self._occupants[slot][1] for slot in plan.slots.tolist()]
        logprobs, logprob_tokens = logprobs_of(occupants, tokens)
        return StepResult(
            step_id=plan.step_id,
            slots=plan.slots,
            generations=plan.generations,
            token_offsets=offsets,
            token_ids=ids,
            accepted=np.array(accepted, np.int32),
            draft_offsets=draft_offsets,
            draft_ids=draft_ids,
            logprobs=logprobs,
            logprob_tokens=logprob_tokens,
            prompt_logprobs=tuple(parts),
            pooled=vectors,
            errors=errors,
            invalid_pages=self.cache.lose(self.lose_pages.get(plan.step_id, ())),
            attachments=self.attachments(plan) if self.attachments else {},
        )

    def _attend(
        self, slot: int, occupant: Occupant, computed: int, new: int, drafts: list[int]
    ) -> None:
        """Check what lies in the cache, then write this step's tokens."""
        prints = list(occupant.prints[: computed + new - len(drafts) + 1])
        for token in drafts:
            prints.append(fingerprint(prints[-1], token))
        if not self.cache.step(slot, prints, computed, new, content_of(occupant.request)):
            occupant.problem = "it was computed from pages that are lost"

    def holds(self, request_id: str) -> bool:
        """Whether a request has entered its slot here."""
        return any(o.request.request_id == request_id for _, o in self._occupants.values())

    def fill(self, request_id: str, start: int, stop: int) -> None:
        """Positions [start, stop) of a request arrive in its pages from elsewhere."""
        for slot, (_, occupant) in self._occupants.items():
            if occupant.request.request_id == request_id:
                self.cache.fill(slot, occupant.prints, start, stop)

    def _sample(self, occupant: Occupant, drafts: list[int]) -> list[int]:
        """The true tokens, or what masks make of them, as long as the drafts agree, and one
        more."""
        new: list[int] = []
        for number in range(len(drafts) + 1):
            position = len(occupant.tokens)
            free = self.script(occupant.request, position, occupant.prints[-1])
            token = self._masks.token(occupant.request.slot, number, free)
            if token is None:
                break
            occupant.push(token)
            new.append(token)
            if number == len(drafts) or drafts[number] != token:
                break
        return new

    def _pool(self, occupant: Occupant, computed: int) -> F32:
        vector = vector_of(
            occupant.tokens[:computed],
            occupant.request.pooling,
            len(self.class_labels),
            self.embedding_size,
        )
        if vector is None or computed != len(occupant.tokens):
            raise IntegrityError("a row is pooled that is not whole, or was not to be pooled")
        return vector

    def _draft(self, occupant: Occupant, wanted: int) -> list[int]:
        if not self.drafter or not wanted:
            return []
        return list(self.drafter(occupant.request, occupant.tokens, wanted))[:wanted]

    def _score(self, row: int, occupant: Occupant, computed: int, new: int) -> list[PromptLogprobs]:
        return prompt_logprobs_of(row, occupant, computed, computed + new)
