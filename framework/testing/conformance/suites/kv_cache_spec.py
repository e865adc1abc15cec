"""The suite of kind `kv_cache_spec`: claims of spec and manager, then runs in an engine."""

from __future__ import annotations

from typing import Any

from framework.contracts.kv_cache_spec import CacheManagerType, FullAttentionSpec
from framework.testing.conformance.cases import Case
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.kv_cache_spec_claims import CacheManagerClaims
from framework.testing.conformance.suites.kv_cache_spec_parts import WatchedPages
from framework.testing.conformance.workload import Workload

FULL = FullAttentionSpec(num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32")
BOTH = ("longest_hit", "droppable")


class CacheManagerTypeSuite(CacheManagerClaims):
    """See `CacheManagerClaims` for what a subclass may set.  Every read of the runs is checked
    against what must lie in the cache."""

    ordinary = ("a_model_of_its_own_is_served",)

    def _work(self, case: Case, *, beside: bool, pages: int, **more: Any) -> WatchedPages:
        manager: CacheManagerType = self.new()
        spec = self.spec(case)
        layers = {"own.0": spec, "own.1": spec} | ({"full": FULL} if beside else {})
        options = {
            "max_num_batched_tokens": int(case.rng.integers(3, 24)),
            "loop_depth": 1 + case.index % 2,
            "max_num_seqs": 4,
            **more,
        }
        case.note(spec=spec, beside_full_attention=beside, pages=pages, **options)
        one = WatchedPages(
            manager,
            runner={"layers": layers, "num_pages": pages, "max_model_len": 40},
            **options,
        )
        encoder = int(case.rng.integers(1, 5)) if manager.by_encoder else 0
        Workload(
            rng=case.rng,
            engine=one,
            requests=12,
            more=lambda number: {"encoder_tokens": encoder},
        ).run()
        return one

    @clause(
        "SPEC-030",
        "alone in a model, requests get their tokens and hold no more pages than max_pages",
        lacks="by_encoder",
        of=BOTH,
    )
    def a_model_of_its_own_is_served(self) -> None:
        for case in self.cases(4):
            self._work(case, beside=False, pages=60)

    @clause(
        "SPEC-031",
        "beside layers that keep everything, requests get their tokens and hold no more pages",
        of=BOTH,
    )
    def a_mixed_model_is_served(self) -> None:
        for case in self.cases(4):
            self._work(case, beside=True, pages=150)

    @clause(
        "SPEC-032",
        "when pages are lacking, requests are preempted, hit what they left, and get their tokens",
        of=BOTH,
    )
    def preempted_requests_are_served(self) -> None:
        for case in self.cases(20):  # few of them come to hit what they left
            self._work(case, beside=True, pages=29, max_num_seqs=8)
