"""Clauses for what layers, groups and rows of a step have to do with each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from framework.contracts.base import Rejected
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.attention_base import advance, random_lengths
from framework.testing.conformance.suites.attention_parts import Options, Request, Values
from framework.testing.conformance.suites.attention_runs import RunClauses, alone
from framework.testing.conformance.suites.attention_stage import Stage


class GroupClauses(RunClauses):
    """And the two capabilities that are about rows of a batch."""

    @clause("ATTN-050", "metadata serves all layers of a group, whatever differs", of=("run",))
    def layers_share_metadata(self) -> None:
        layers = [self.plain(), self.plain()]
        for capability in ("softcap", "window", "alibi"):
            layers += self.supported(capability)[:1]
        for case in self.tries(2):
            keeps_all = Options(spec=self.plain().plain_spec())
            stage = self.stage(case, [*layers, self.plain()], keeps_all)
            advance(stage, [(stage.request(), n) for n in random_lengths(case.rng, 16)], steps=3)

    @clause("ATTN-051", "metadata of a group before may be reused", of=("builder",))
    def own_metadata_can_be_reused(self) -> None:
        for case in self.tries(2):
            backend = self.new()
            stages = [self.stage(case, [self.plain()], backend=backend) for _ in range(2)]
            self._in_turns(stages, reuse=True)

    @clause("ATTN-052", "metadata of another backend is no hindrance", of=("builder",))
    def foreign_metadata_is_passed_over(self) -> None:
        case = self.once()
        for foreign in (object(), {"query_starts": None}, "metadata", 7):
            stage = self.stage(case, [self.plain()])
            request = stage.request()
            stage.step([(request, 5)], reuse=foreign)
            stage.step([(request, 1)], reuse=foreign)

    @clause("ATTN-053", "one instance serves several groups at a time", of=("builder", "run"))
    def groups_keep_apart(self) -> None:
        sizes = [size for size in self.page_sizes(self.plain()) if size <= 64][:2]
        other = replace(self.plain(), head_size=self.head_sizes()[-1 if len(sizes) > 1 else 0])
        other = replace(other, head_size_v=other.head_size)
        for case in self.tries(2):
            backend = self.new()
            options = Options(num_pages=40)
            stages = [
                Stage(backend, self.place(), [features], size, case.rng, options)
                for features, size in (
                    (self.plain(), self.best()),
                    (other, self.page_sizes(other)[-1]),
                    (self.plain(), self.best()),
                )
            ]
            self._in_turns(stages, reuse=False)

    def _in_turns(self, stages: list[Stage], *, reuse: bool) -> None:
        """Plan for all groups, then run all, as a runner does; three steps."""
        requests = [[stage.request() for _ in range(3)] for stage in stages]
        for news in ((5, 9, 1), (1, 1, 3), (1, 0, 2)):
            made: list[tuple[Stage, list[tuple[Request, int]], Values, object]] = []
            for stage, own in zip(stages, requests, strict=True):
                rows = list(zip(own, news, strict=True))
                rows = [rows[index] for index in stage.rng.permutation(len(rows))]
                values = stage.values(sum(news))
                before = made[-1][3] if made and reuse else None
                made.append((stage, rows, values, stage.begin(rows, values, before)))
            for stage, rows, values, metadata in made:
                stage.compare(rows, values, 0, stage.run(0, values, metadata))

    @clause(
        "ATTN-114",
        "drafts that were not accepted are written over",
        needs="several_per_decode",
        of=("run",),
    )
    def drafts_are_written_over(self) -> None:
        for case in self.tries(2):
            stage = self.stage(case, [self.supported("several_per_decode")[0]])
            requests = [stage.request() for _ in range(3)]
            stage.step([(request, int(case.rng.integers(1, 40))) for request in requests])
            for _ in range(3):
                drafts = [int(case.rng.integers(0, 5)) for _ in requests]
                stage.step([(r, 1 + n) for r, n in zip(requests, drafts, strict=True)], keep=True)
                for request, count in zip(requests, drafts, strict=True):
                    stage.rewind(request, int(case.rng.integers(0, count + 1)))

    @clause(
        "ATTN-214",
        "several tokens per decode: the reason names them",
        lacks="several_per_decode",
        of=("answer",),
    )
    def drafts_are_rejected(self) -> None:
        for features in self.variants("several_per_decode"):
            answer = self.ask(features)
            named = {r.field for r in answer.reasons} if isinstance(answer, Rejected) else set()
            expect("several_per_decode" in named, "no reason names them", found=sorted(named))

    @clause(
        "ATTN-115",
        "a row's output is the same beside others and alone, bit for bit",
        needs="batch_invariant",
        of=("run",),
    )
    def rows_are_invariant(self) -> None:
        self._alone(exact=True)

    @clause(
        "ATTN-215",
        "a row's output is the same beside others and alone, within tolerance",
        lacks="batch_invariant",
        of=("run",),
    )
    def rows_are_independent(self) -> None:
        self._alone(exact=False)

    def _alone(self, *, exact: bool) -> None:
        for case in self.tries(2):
            stage = self.stage(case, [self.plain()])
            requests = [stage.request() for _ in range(4)]
            stage.step([(request, int(case.rng.integers(1, 30))) for request in requests])
            news = [1, int(case.rng.integers(2, 20)), 1, 3]
            rows = [(requests[i], news[i]) for i in case.rng.permutation(4)]
            values = stage.values(sum(news))
            outs = stage.step(rows, values, keep=True)
            expect(np.isfinite(outs[0]).all(), "the output is not finite")
            alone(stage, rows, values, outs, exact=exact)
