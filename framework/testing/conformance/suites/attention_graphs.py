"""Attention that is part of a graph: tensors that stay, and metadata that is renewed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framework.contracts.attention_backend import AttentionSupported, CommonMetadata
from framework.contracts.base import Rejected
from framework.contracts.graphs import SUPPORT
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.attention_parts import Request, Values
from framework.testing.conformance.suites.attention_runs import RunClauses
from framework.testing.conformance.suites.attention_stage import Stage

ROWS, ROOM = 5, 24
"""Of a graph: rows, and tokens where rows may have any number."""
SPOILT = -(2**20)


class Standing:
    """Tensors of a graph's steps, and their twins on the host."""

    def __init__(self, stage: Stage, tokens: int, max_query: int) -> None:
        self._stage, width = stage, stage.plan.num_pages
        self.tokens = tokens
        self._hosts: dict[str, npt.NDArray[Any]] = {
            "query_starts": np.zeros(ROWS + 1, np.int32),
            "lengths": np.zeros(ROWS, np.int32),
            "page_table": np.zeros((ROWS, width), np.int32),
            "slot_mapping": np.zeros(tokens, np.int64),
        }
        bridge, device = stage.place.bridge, stage.place.facts.device
        self._tensors = {
            name: bridge.tensor(host, str(host.dtype), device) for name, host in self._hosts.items()
        }
        self.common = CommonMetadata(
            **self._tensors,
            query_starts_host=self._hosts["query_starts"],
            lengths_host=self._hosts["lengths"],
            max_query=max_query,
            max_length=width * stage.page_tokens,
        )

    def put(self, common: CommonMetadata) -> None:
        """Another step; rows and tokens behind it are cleared."""
        bridge = self._stage.place.bridge
        for name, host in self._hosts.items():
            found = bridge.array(getattr(common, name))
            host[...] = found[-1] if name == "query_starts" else 0
            host[tuple(slice(size) for size in found.shape)] = found
            bridge.write(self._tensors[name], host)

    def spoil(self) -> None:
        """What stands on the host is of no step any more, as it is when a graph is replayed."""
        for host in self._hosts.values():
            host[...] = SPOILT


class GraphClauses(RunClauses):
    """For backends whose `graphs` is not "none"."""

    @clause(
        "ATTN-116",
        "in a graph: tensors that stay and metadata that is renewed give what a plan would",
        needs="graphs",
        of=("answer", "builder", "run"),
    )
    def graphs_are_renewed(self) -> None:
        support = self.ask(self.plain()).graphs
        expect(support in SUPPORT, "unknown support", expected=", ".join(SUPPORT), found=support)
        answer = self.new().answer(replace(self.query(), graph_mode="full"))
        good = isinstance(answer, AttentionSupported)
        expect(good, f"graphs are {support!r}, and graph_mode 'full' is rejected", found=answer)
        for case in self.tries(3):
            self._replays(case, SUPPORT.index(support))

    @clause(
        "ATTN-216",
        "no part of a graph: a query with graph_mode full is rejected",
        lacks="graphs",
        of=("answer",),
    )
    def graphs_are_refused(self) -> None:
        answer = self.new().answer(replace(self.query(), graph_mode="full"))
        expect(isinstance(answer, Rejected), "graphs are 'none', and it is supported", found=answer)

    def _replays(self, case: Case, level: int) -> None:
        rng = case.rng
        stage = self.stage(case, [self.plain()])
        requests = [stage.request() for _ in range(ROWS)]
        stage.step([(request, int(rng.integers(1, 20))) for request in requests], keep=True)
        # The number of queries of each row, or 0: any.
        query = {"decode": 1, "uniform": int(rng.integers(1, 4))}.get(SUPPORT[level], 0)
        case.note(tokens_of_a_row=query or "any")
        standing = Standing(stage, query * ROWS or ROOM, query or ROOM)
        metadata = stage.builder.plan(standing.common, None)
        self._through(stage, standing, metadata, stage.values(0))
        renew = getattr(stage.builder, "renew", None)
        expect(callable(renew), "its builder has no `renew`", found=type(stage.builder).__name__)
        for _ in range(3):
            chosen = [requests[i] for i in rng.permutation(ROWS)[: int(rng.integers(1, ROWS + 1))]]
            rows = [(request, query or int(rng.integers(1, 5))) for request in chosen]
            self._replay(stage, standing, metadata, rows)

    def _replay(
        self,
        stage: Stage,
        standing: Standing,
        metadata: object,
        rows: Sequence[tuple[Request, int]],
    ) -> None:
        values = stage.values(sum(new for _, new in rows))
        standing.put(stage.common_of(rows, values))
        renew: Any = stage.builder
        renew.renew(standing.common, metadata)
        standing.spoil()
        before = self._unused(stage)
        out = self._through(stage, standing, metadata, values)
        stage.compare(rows, values, 0, out[: len(values.q[0])])
        expect(before == self._unused(stage), "it writes into pages of no row")

    def _through(self, stage: Stage, standing: Standing, metadata: object, values: Values) -> Any:
        """With the values of a step, and any behind them."""
        rest = stage.values(standing.tokens - len(values.q[0]))
        padded = [
            [np.concatenate(pair) for pair in zip(own, more, strict=True)]
            for own, more in ((values.q, rest.q), (values.k, rest.k), (values.v, rest.v))
        ]
        return stage.run(0, Values(q=padded[0], k=padded[1], v=padded[2]), metadata)

    def _unused(self, stage: Stage) -> list[bytes]:
        content = stage.content()
        return [content[stage.span(0, page)].tobytes() for page in stage.free]
