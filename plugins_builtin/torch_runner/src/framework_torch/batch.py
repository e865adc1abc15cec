"""The persistent batch: what the runner keeps of every request, in arrays by slot.

    tokens[slot]   |prompt ...... |sampled ... |not known yet ...|
                   0              num_prompt   known             max_len

A plain decode step reads and writes these with a few array operations, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32, AdmittedRequest, Bool, PageUpdates, StepPlan
from framework_torch.embeds import EMBEDS

Watcher = tuple[Callable[[AdmittedRequest], None], Callable[[int], None]]
"""What to call as a request enters a slot, and as it leaves."""

Check = Callable[[AdmittedRequest], str | None]
"""Why a request cannot be computed, or None."""


class TokenTable:
    """Token ids by slot, and how many of them are known.

    first: where a slot's ids begin; before it stand a prompt's embeddings, and 0.
    tokens: int32 [max_slots, max_len + 1]; one column more, as the last token of the longest
    request is sampled but never computed.
    """

    def __init__(self, max_slots: int, max_len: int) -> None:
        self.tokens: I32 = np.zeros((max_slots, max_len + 1), np.int32)
        self.num_prompt: I32 = np.zeros(max_slots, np.int32)
        self.known: I32 = np.zeros(max_slots, np.int32)
        self.first: I32 = np.zeros(max_slots, np.int32)

    @property
    def width(self) -> int:
        return int(self.tokens.shape[1])

    def fill(self, slot: int, tokens: I32, num_prompt: int, first: int = 0) -> None:
        """A request enters with all its tokens."""
        self.tokens[slot, : len(tokens)] = tokens
        self.num_prompt[slot] = num_prompt
        self.known[slot] = len(tokens)
        self.first[slot] = first

    def append(self, slots: I32, positions: npt.NDArray[np.int64], ids: I32) -> None:
        """Write ids at positions, ascending per slot; the last one of a slot ends what is
        known.  Positions past the table belong to requests that end now; they are dropped."""
        inside = positions < self.width
        if not inside.all():
            slots, positions, ids = slots[inside], positions[inside], ids[inside]
        self.tokens[slots, positions] = ids
        self.known[slots] = positions + 1


class PageTables:
    """Page ids by slot, one int32 array [max_slots, P] per KV group; 0 is the null page."""

    def __init__(self, groups: int, max_slots: int, max_pages: int) -> None:
        self.groups = [np.zeros((max_slots, max_pages), np.int32) for _ in range(groups)]

    def apply(self, updates: Sequence[PageUpdates]) -> None:
        """One entry per group, in the order of the groups."""
        for table, update in zip(self.groups, updates, strict=True):
            if not len(update.slots):
                continue
            if len(np.unique(update.slots)) == len(update.slots):
                _apply_all(table, update)
            else:
                _apply_in_order(table, update)


def _apply_all(table: I32, update: PageUpdates) -> None:
    """Each slot once: order does not matter."""
    table[update.slots[update.replace]] = 0
    columns = ragged_range(update.counts) + np.repeat(update.starts, update.counts)
    table[np.repeat(update.slots, update.counts), columns] = update.ids


def _apply_in_order(table: I32, update: PageUpdates) -> None:
    """A slot comes more than once, as when it changed hands between two plans."""
    first = 0
    for slot, start, count, replace in zip(
        update.slots, update.starts, update.counts, update.replace, strict=True
    ):
        if replace:
            table[slot] = 0
        table[slot, start : start + count] = update.ids[first : first + count]
        first += count


def ragged_range(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """0 .. counts[0] - 1, 0 .. counts[1] - 1, ... as one array."""
    counts = counts.astype(np.int64)
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


class Batch:
    """Slots and who holds them.

    watchers: called as requests enter and leave.  checks: asked before one enters.
    prompt_k: entries wanted per prompt token, by slot; prompt_from: first prompt position
    still to be scored.  samples: the request wants tokens at all.
    broken: slot -> why its request cannot be served; its rows end with that sentence.
    """

    def __init__(
        self,
        table: TokenTable,
        pages: PageTables,
        vocab_size: int,
        watchers: Sequence[Watcher],
        checks: Sequence[Check] = (),
    ) -> None:
        slots = len(table.known)
        self.table, self.pages, self.vocab_size = table, pages, vocab_size
        self._watchers, self._checks = watchers, checks
        self.generations: I32 = np.zeros(slots, np.int32)
        self.held: Bool = np.zeros(slots, np.bool_)
        self.samples: Bool = np.zeros(slots, np.bool_)
        self.prompt_from: I32 = np.zeros(slots, np.int32)
        self.prompt_k: dict[int, int] = {}
        self.broken: dict[int, str] = {}

    def apply(self, plan: StepPlan) -> None:
        """Who left, who entered, whose pages changed."""
        for slot, generation in plan.released:
            if self.held[slot] and self.generations[slot] == generation:
                self._release(slot)
        for request in plan.admitted:
            if self.held[request.slot]:
                self._release(request.slot)
            self._enter(request)
        if plan.pages:
            self.pages.apply(plan.pages)

    def _release(self, slot: int) -> None:
        self.held[slot] = False
        self.samples[slot] = False
        self.prompt_k.pop(slot, None)
        if self.broken.pop(slot, None) is None:
            for _, drop in self._watchers:
                drop(slot)

    def _enter(self, request: AdmittedRequest) -> None:
        slot, sampling = request.slot, request.sampling
        self.held[slot] = True
        self.generations[slot] = request.generation
        self.table.known[slot] = 0
        problem = self._problem(request)
        if problem is not None:
            self.broken[slot] = problem
            return
        first = request.num_prompt if EMBEDS in request.payloads else 0
        self.table.fill(slot, request.tokens, request.num_prompt, first)
        for admit, _ in self._watchers:
            admit(request)
        self.samples[slot] = sampling is not None and sampling.max_tokens != 0
        self.prompt_from[slot] = max(1, request.prompt_logprobs_from)
        if sampling is not None and sampling.prompt_logprobs is not None:
            self.prompt_k[slot] = sampling.prompt_logprobs

    def _problem(self, request: AdmittedRequest) -> str | None:
        """Why the model cannot compute this; one bad id would spoil the whole step."""
        tokens = request.tokens
        if not 0 < len(tokens) < self.table.width:
            return f"{len(tokens)} tokens do not fit into [1, {self.table.width - 1}]"
        if tokens.min() < 0 or tokens.max() >= self.vocab_size:
            return f"token ids must be in [0, {self.vocab_size})"
        found = (check(request) for check in self._checks)
        return next((problem for problem in found if problem is not None), None)
