"""Clauses about a cache spec and about what its manager answers, by slow references."""

from __future__ import annotations

import dataclasses
import math

from framework.contracts.kv_cache_spec import CacheManagerType, KVCacheSpec
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.kv_cache_spec_parts import (
    all_present,
    dropped,
    hit_of,
    pages_read,
    random_spec,
)

HITS, DROPS = ("longest_hit",), ("droppable",)
BOTH = (*HITS, *DROPS)


class CacheManagerClaims(Suite):
    """keeps_all, carries_state, by_encoder: what the class says of itself."""

    kind = "kv_cache_spec"
    capabilities = ("keeps_all", "carries_state", "by_encoder")

    def declared(self) -> frozenset[str]:
        manager = self.new()
        return frozenset(name for name in self.capabilities if getattr(manager, name))

    def spec(self, case: Case) -> KVCacheSpec:
        """A spec that the manager serves.  Override it where integers from 1 to 12 do not make
        one."""
        manager: CacheManagerType = self.new()
        return random_spec(manager.spec_class, case.rng)

    def _case(self, case: Case) -> tuple[CacheManagerType, KVCacheSpec, int]:
        """(manager, spec, tokens per page)"""
        spec = self.spec(case)
        size = int(case.rng.choice([1, 2, 3, 4, 8]))
        case.note(spec=spec, page_tokens=size)
        return self.new(), spec, size

    # The spec

    @clause("SPEC-001", "specs are frozen values: equal ones are one key of a mapping")
    def specs_are_values(self) -> None:
        for case in self.cases(5):
            spec = self.spec(case)
            expect(isinstance(spec, KVCacheSpec), "it derives from no KVCacheSpec", found=spec)
            frozen = dataclasses.is_dataclass(spec) and type(spec).__dataclass_params__.frozen  # type: ignore[attr-defined]
            expect(frozen, f"{type(spec).__name__} is no frozen dataclass")
            same = dataclasses.replace(spec)
            expect(spec == same and len({spec, same}) == 1, "two equal specs differ", found=spec)

    @clause("SPEC-002", "a page has a whole number of bytes, and none only if no page is needed")
    def bytes_are_counts(self) -> None:
        for case in self.cases(20):
            _, spec, size = self._case(case)
            for name, found in (
                ("state_bytes", spec.state_bytes()),
                ("page_bytes", spec.page_bytes(size)),
                ("max_bytes", spec.max_bytes(40, size, 8)),
            ):
                fine = isinstance(found, int) and found >= 0
                expect(fine, f"{name} is no number of bytes", found=found)
            empty = spec.page_bytes(size) == 0
            expect(
                empty <= (spec.max_pages(40, size, 8) == 0),
                "pages without a byte are needed",
                expected="more than 0 bytes, or max_pages() == 0",
                found=f"{spec.max_pages(40, size, 8)} pages of 0 bytes",
            )

    @clause("SPEC-003", "a page of twice the tokens has twice the bytes", lacks="carries_state")
    def bytes_are_linear(self) -> None:
        for case in self.cases(20):
            _, spec, size = self._case(case)
            whole = size * spec.tokens_per_state.numerator
            expect(
                spec.page_bytes(2 * whole) == 2 * spec.page_bytes(whole),
                "page_bytes is not linear in tokens",
                expected=2 * spec.page_bytes(whole),
                found=spec.page_bytes(2 * whole),
            )

    @clause(
        "SPEC-004", "a page that carries a state has its bytes at any length", needs="carries_state"
    )
    def bytes_of_a_state_are_constant(self) -> None:
        for case in self.cases(20):
            _, spec, size = self._case(case)
            found = (spec.page_bytes(size), spec.page_bytes(7 * size), spec.state_bytes())
            expect(len(set(found)) == 1, "page_bytes of a state changes", found=found)

    @clause(
        "SPEC-005",
        "max_pages is at most what all tokens fill, and never less for longer requests or steps",
        lacks="by_encoder",
    )
    def most_pages_are_monotonic(self) -> None:
        for case in self.cases(20):
            _, spec, size = self._case(case)
            before = 0
            for length in range(60):
                step = int(case.rng.integers(1, 20))
                most = spec.max_pages(length, size, step)
                fine = isinstance(most, int) and 0 <= most <= math.ceil(length / size)
                expect(fine, f"max_pages({length}, {size}, {step}) is out of range", found=most)
                more = spec.max_pages(length, size, step + 1)
                expect(more >= most, "max_pages is less for a longer step", found=(most, more))
                least = spec.max_pages(length, size, 4)
                expect(least >= before, "max_pages is less for a longer request", found=length)
                before = least

    @clause("SPEC-006", "a token reads positions before its own")
    def reads_are_of_the_past(self) -> None:
        for case in self.cases(10):
            spec = self.spec(case)
            case.note(spec=spec)
            for position in range(40):
                for span in spec.reads(position):
                    fine = isinstance(span, range)
                    fine = fine and all(0 <= place < position for place in (*span[:1], *span[-1:]))
                    expect(
                        fine,
                        f"reads({position}) is not of the past",
                        expected=f"ranges within [0, {position})",
                        found=span,
                    )

    # What may be hit

    @clause("SPEC-010", "a hit is a number of the pages that were shown", of=HITS)
    def hits_are_counts(self) -> None:
        for case in self.cases(10):
            manager, spec, size = self._case(case)
            for present in all_present(int(case.rng.integers(0, 8))):
                hit_of(manager, present, size, spec)

    @clause(
        "SPEC-011",
        "with the pages of a hit every later token can be computed",
        lacks="by_encoder",
        of=HITS,
    )
    def hits_suffice(self) -> None:
        for case in self.cases(12):
            manager, spec, size = self._case(case)
            needed = [pages_read(spec, count * size, size) for count in range(8)]
            for present in all_present(7):
                hit = hit_of(manager, present, size, spec)
                lacking = sorted(page for page in needed[hit] if not present[page])
                expect(
                    not lacking,
                    f"a hit of {hit} pages lacks pages that are read: {lacking}",
                    found=f"present={present}",
                )

    @clause(
        "SPEC-012",
        "no longer prefix could be hit",
        must=False,
        lacks="by_encoder",
        of=HITS,
    )
    def hits_are_the_longest(self) -> None:
        for case in self.cases(12):
            manager, spec, size = self._case(case)
            needed = [pages_read(spec, count * size, size) for count in range(8)]
            for present in all_present(7):
                hit = hit_of(manager, present, size, spec)
                best = max(
                    count for count in range(8) if all(present[page] for page in needed[count])
                )
                expect(hit >= best, "a hit is lost", expected=best, found=f"{hit} for {present}")

    @clause("SPEC-013", "with one more page in the cache a hit is no shorter", of=HITS)
    def hits_are_monotonic(self) -> None:
        for case in self.cases(12):
            manager, spec, size = self._case(case)
            hits = {p: hit_of(manager, p, size, spec) for p in all_present(6)}
            for present, hit in hits.items():
                for page in range(6):
                    more = (*present[:page], True, *present[page + 1 :])
                    expect(
                        hits[more] >= hit,
                        f"page {page} makes the hit shorter",
                        expected=f">= {hit}, as for {present}",
                        found=f"{hits[more]} for {more}",
                    )

    @clause("SPEC-014", "pages of an encoder do not restrict a hit", needs="by_encoder", of=HITS)
    def an_encoder_does_not_restrict_hits(self) -> None:
        for case in self.cases(5):
            manager, spec, size = self._case(case)
            for present in all_present(5):
                hit = hit_of(manager, present, size, spec)
                expect(hit == 5, "what is by_encoder restricts a hit", expected=5, found=hit)

    # What may be given back

    @clause("SPEC-020", "no page that may be given back is written later", of=DROPS)
    def dropped_pages_are_full(self) -> None:
        for case in self.cases(12):
            manager, spec, size = self._case(case)
            for computed in range(60):
                start, stop = manager.droppable(computed, size, spec)
                expect(
                    start >= 0 and stop <= computed // size,
                    f"at {computed} tokens, a page that is written yet is given back, or an "
                    "interval without pages lies where they are",
                    expected=f"indices from 0 to {computed // size}",
                    found=(start, stop),
                )

    @clause("SPEC-021", "no page that may be given back is read later", of=DROPS)
    def dropped_pages_are_not_read(self) -> None:
        for case in self.cases(12):
            manager, spec, size = self._case(case)
            for computed in range(60):
                found = set(dropped(manager, computed, size, spec))
                wrong = sorted(found & pages_read(spec, computed, size))
                expect(
                    not wrong,
                    f"at {computed} tokens, pages {wrong} are given back that `reads` names",
                )

    @clause("SPEC-022", "what may be given back may be so ever after", of=DROPS)
    def dropped_pages_stay_dropped(self) -> None:
        for case in self.cases(12):
            manager, spec, size = self._case(case)
            before: set[int] = set()
            for computed in range(60):
                found = set(dropped(manager, computed, size, spec))
                expect(
                    before <= found,
                    f"pages are wanted again at {computed} tokens",
                    expected=sorted(before),
                    found=sorted(found),
                )
                before = found

    @clause("SPEC-023", "one that keeps all gives nothing back", needs="keeps_all", of=DROPS)
    def all_is_kept(self) -> None:
        for case in self.cases(5):
            manager, spec, size = self._case(case)
            for computed in range(60):
                found = dropped(manager, computed, size, spec)
                expect(not found, "it keeps_all, and gives pages back", found=found)

    @clause(
        "SPEC-024",
        "one that does not keep all gives pages back in the end",
        must=False,
        lacks="keeps_all",
        of=DROPS,
    )
    def not_all_is_kept(self) -> None:
        for case in self.cases(5):
            manager, spec, size = self._case(case)
            found = dropped(manager, 50 * size + 100, size, spec)
            expect(found, "it does not keep all, and gives no page back in a long request")

    @clause(
        "SPEC-025", "answers depend on nothing but the question", of=("longest_hit", "droppable")
    )
    def managers_have_no_state(self) -> None:
        for case in self.cases(5):
            manager, spec, size = self._case(case)
            shown = [bool(x) for x in case.rng.integers(0, 2, 6)]
            first = manager.longest_hit(shown, size, spec), manager.droppable(50, size, spec)
            kept = list(shown)
            for _ in range(10):
                manager.longest_hit([True] * int(case.rng.integers(0, 9)), size, spec)
                manager.droppable(int(case.rng.integers(0, 90)), size, spec)
            again = manager.longest_hit(shown, size, spec), manager.droppable(50, size, spec)
            expect(
                first == again, "asked again, it answers differently", expected=first, found=again
            )
            expect(shown == kept, "it changes what it is shown", expected=kept, found=shown)
