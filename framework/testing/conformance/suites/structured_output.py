"""The suite of kind `structured_output`: masks against what is accepted, token by token."""

from __future__ import annotations

import numpy as np

from framework.contracts.base import Supported
from framework.contracts.structured_output import (
    STRUCTURES,
    WHITE_SPACE,
    Grammar,
    Matcher,
    StructureQuery,
)
from framework.contracts.structures import query_of
from framework.errors import InputError, UnsupportedError
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.queries import but, check_newer, check_rejected
from framework.testing.conformance.suites.structured_examples import (
    BROKEN,
    SPECIAL,
    VOCABULARY,
)
from framework.testing.conformance.suites.structured_parts import (
    StructuredOutputBase,
    allowed,
    takes,
    tokens_of,
)

MATCH = ("compile", "load")


class StructuredOutputSuite(StructuredOutputBase):
    """See `StructuredOutputBase` for what a subclass may set."""

    @clause("SOUT-001", "what it does not cover it rejects, by the field", of=("answer",))
    def what_is_not_covered_is_rejected(self) -> None:
        plugin = self.new()
        check_rejected(plugin, StructureQuery(structure="telepathy"), "structure")
        for structure in STRUCTURES:
            query = StructureQuery(structure=structure)
            if structure not in plugin.coverage.structures:
                check_rejected(plugin, query, "structure")
                continue
            check_rejected(plugin, but(query, keywords=frozenset(("telepathy",))), "keywords")
            check_rejected(plugin, but(query, formats=frozenset(("telepathy",))), "formats")
            check_rejected(plugin, but(query, dialect="telepathy"), "dialect")

    @clause("SOUT-002", "it is not chosen for what a later contract asks", of=("answer",))
    def newer_fields_are_not_guessed_at(self) -> None:
        check_newer(
            self.target, StructureQuery(structure=next(iter(self.new().coverage.structures)))
        )

    @clause("SOUT-010", "a grammar that it covers passes the check", of=("check",))
    def covered_grammars_pass(self) -> None:
        plugin = self.new()
        for example in self.served(plugin):
            plugin.check(example.grammar)

    @clause(
        "SOUT-011",
        "what is no grammar is refused with InputError or UnsupportedError, by check and compile",
        of=("check", "compile"),
    )
    def broken_grammars_are_refused(self) -> None:
        plugin = self.new()
        for grammar in BROKEN:
            if not isinstance(plugin.answer(query_of(grammar)), Supported):
                continue
            for name in ("check", "compile"):
                more = (VOCABULARY,) if name == "compile" else ()
                try:
                    getattr(plugin, name)(grammar, *more)
                except (InputError, UnsupportedError):
                    continue
                expect(False, f"{name} takes what is no {grammar.structure}", found=grammar.text)

    @clause("SOUT-020", "outputs that fit are accepted, and can end there", of=MATCH)
    def what_fits_is_accepted(self) -> None:
        plugin = self.new()
        for example in self.served(plugin):
            for text in example.fits:
                matcher = self.matcher(plugin, example.grammar)
                count = takes(matcher, text)
                what = f"{example.grammar.structure} {example.grammar.text!r}"
                expect(
                    count == len(text.encode()), f"{what} refuses {text!r}", found=f"byte {count}"
                )
                missing = set(VOCABULARY.eos_ids) - allowed(matcher)
                expect(not missing, f"{what}: {text!r} may not end", found=sorted(missing))

    @clause("SOUT-021", "outputs that do not fit are refused, or cannot end", of=MATCH)
    def what_does_not_fit_is_refused(self) -> None:
        plugin = self.new()
        for example in self.served(plugin):
            for text in example.fails:
                matcher = self.matcher(plugin, example.grammar)
                whole = takes(matcher, text) == len(text.encode())
                ends = whole and bool(set(VOCABULARY.eos_ids) & allowed(matcher))
                what = f"{example.grammar.structure} {example.grammar.text!r}"
                expect(not ends, f"{what} takes {text!r}")

    @clause("SOUT-022", "the mask allows exactly what accept takes", of=MATCH)
    def masks_are_exact(self) -> None:
        for case, _, matcher in self.walks(3):
            for _ in range(self.walk):
                mask = allowed(matcher)
                taken = set()
                for token in range(len(VOCABULARY)):
                    if matcher.accept(token):
                        taken.add(token)
                        matcher.rollback(1)
                expect(mask == taken, "mask and accept differ", found=sorted(mask ^ taken)[:20])
                if not mask:
                    break
                expect(matcher.accept(self.pick(case, mask)), "an allowed token is refused")

    @clause("SOUT-028", "a mask is the same whatever stood in its row before", of=MATCH)
    def masks_are_written_whole(self) -> None:
        for case, _, matcher in self.walks(1):
            while mask := allowed(matcher):
                row = np.zeros(VOCABULARY.words, np.uint32)
                matcher.fill_bitmask(row)
                expect(tokens_of(row) == mask, "in a row of zeros it is another")
                matcher.accept(self.pick(case, mask))
                if case.rng.random() < 0.2:
                    break

    @clause("SOUT-023", "a token that is refused changes nothing", of=MATCH)
    def refusals_change_nothing(self) -> None:
        for case, _, matcher in self.walks(2):
            for _ in range(self.walk):
                mask = allowed(matcher)
                others = [t for t in range(len(VOCABULARY)) if t not in mask]
                for token in case.rng.choice(others, 5):
                    expect(not matcher.accept(int(token)), "a token outside the mask is accepted")
                expect(allowed(matcher) == mask, "after refusals the mask is another")
                if not mask:
                    break
                matcher.accept(self.pick(case, mask))

    @clause("SOUT-024", "tokens are taken back exactly, the end of a sequence included", of=MATCH)
    def rollback_is_exact(self) -> None:
        for case, _, matcher in self.walks(3):
            masks = [allowed(matcher)]
            while masks[-1] and len(masks) <= self.walk:
                ends = masks[-1].intersection(VOCABULARY.eos_ids)
                token = (
                    min(ends) if ends and case.rng.random() < 0.5 else self.pick(case, masks[-1])
                )
                matcher.accept(token)
                masks.append(allowed(matcher))
            while len(masks) > 1:
                back = int(case.rng.integers(0, min(4, len(masks))))
                matcher.rollback(back)
                del masks[len(masks) - back :]
                ended = matcher.is_terminated()
                expect(not back or not ended, "what was taken back has ended all the same")
                expect(allowed(matcher) == masks[-1], f"{back} tokens back, the mask is another")

    @clause(
        "SOUT-027",
        "where tokens were taken back, as many as it may be, it goes on as a new one would",
        of=MATCH,
    )
    def rollback_leaves_nothing(self) -> None:
        plugin = self.new()
        covered = list(self.served(plugin))
        ready = [plugin.load(plugin.compile(e.grammar, VOCABULARY), VOCABULARY) for e in covered]
        for case in self.cases(3 * len(covered)):
            grammar = covered[case.index % len(covered)].grammar
            fresh = ready[case.index % len(covered)].matcher
            tried, taken = fresh(), list[int]()
            while (mask := allowed(tried)) and len(taken) < self.walk:
                taken.append(self.pick(case, mask))
                tried.accept(taken[-1])
            back = int(case.rng.integers(0, len(taken) + 1)) if case.index else len(taken)
            case.note(
                structure=grammar.structure, text=repr(grammar.text), of=len(taken), back=back
            )
            tried.rollback(back)
            new = fresh()
            for token in taken[: len(taken) - back]:
                new.accept(token)
            for _ in range(self.walk // 2):
                mask = allowed(new)
                expect(allowed(tried) == mask, f"{back} tokens back, it is not as a new one")
                ends = tried.is_terminated(), new.is_terminated()
                expect(ends[0] == ends[1], "it has ended, or not", expected=ends[1], found=ends[0])
                if not mask:
                    break
                token = self.pick(case, mask)
                expect(new.accept(token) and tried.accept(token), "an allowed token is refused")

    @clause("SOUT-025", "after an end of sequence nothing is allowed", of=MATCH)
    def ends_are_ends(self) -> None:
        plugin = self.new()
        for example in self.served(plugin):
            for end in VOCABULARY.eos_ids:
                matcher = self.matcher(plugin, example.grammar)
                takes(matcher, example.fits[0])
                expect(not matcher.is_terminated(), "it has ended before the end of the sequence")
                expect(matcher.accept(end), f"end {end} is refused after {example.fits[0]!r}")
                expect(matcher.is_terminated(), f"after end {end} it has not ended")
                expect(not allowed(matcher), "after the end tokens are allowed")
                expect(not matcher.accept(end), "after the end another is accepted")

    @clause("SOUT-026", "tokens without bytes are never allowed, special ones least", of=MATCH)
    def tokens_without_bytes_are_forbidden(self) -> None:
        silent = {t for t, data in enumerate(VOCABULARY.tokens) if not data}
        silent -= set(VOCABULARY.eos_ids)
        beyond = set(range(len(VOCABULARY), 32 * VOCABULARY.words))
        for case, _, matcher in self.walks(2):
            while mask := allowed(matcher):
                wrong = mask & (silent | beyond)
                expect(not wrong, f"such as {SPECIAL} are allowed", found=sorted(wrong))
                matcher.accept(self.pick(case, mask))
                if case.rng.random() < 1 / self.walk:
                    break

    @clause("SOUT-030", "matchers of one grammar do not touch each other", of=MATCH)
    def matchers_are_apart(self) -> None:
        plugin = self.new()
        for example in self.served(plugin):
            ready = plugin.load(plugin.compile(example.grammar, VOCABULARY), VOCABULARY)
            first, second = ready.matcher(), ready.matcher()
            mask = allowed(second)
            takes(first, example.fits[0])
            expect(allowed(second) == mask, "one matcher moved another")
            expect(allowed(ready.matcher()) == mask, "a new matcher is not at the start")

    @clause("SOUT-033", "one text under two structures is two grammars", of=("compile", "load"))
    def structures_are_apart(self) -> None:
        """As an expression it is one of these characters."""
        plugin, text = self.new(), '["ab", "c"]'
        both = [Grammar(structure=name, text=text) for name in ("regex", "choice")]
        for grammar in both:
            if isinstance(plugin.answer(query_of(grammar)), Supported):
                found = allowed(self.matcher(plugin, grammar))
                alone = allowed(self.matcher(self.new(), grammar))
                what = f"a {grammar.structure} is what another structure of the same text was"
                expect(found == alone, what, expected=sorted(alone), found=sorted(found))

    @clause("SOUT-031", "another instance loads what one compiled", of=MATCH)
    def what_is_compiled_travels(self) -> None:
        for example in self.served(self.new()):
            data = self.new().compile(example.grammar, VOCABULARY)
            expect(isinstance(data, bytes), "compile gives no bytes", found=type(data).__name__)
            matcher = self.new().load(data, VOCABULARY).matcher()
            count = takes(matcher, example.fits[0])
            expect(count == len(example.fits[0].encode()), "loaded elsewhere it is another grammar")

    @clause("SOUT-032", "white space between the parts of JSON is bounded", of=MATCH)
    def white_space_is_bounded(self) -> None:
        plugin = self.new()
        for example in self.served(plugin):
            if example.grammar.structure not in ("json", "json_object"):
                continue
            for space in b" \n\t":
                matcher = self.matcher(plugin, example.grammar)
                for byte in example.fits[0].encode():
                    count = 0
                    if not self._in_text(matcher):
                        while count <= WHITE_SPACE and matcher.accept(space):
                            count += 1
                        expect(count <= WHITE_SPACE, "white space goes on and on", found=count)
                    matcher.rollback(count)
                    matcher.accept(byte)

    @staticmethod
    def _in_text(matcher: Matcher) -> bool:
        """Within a string, where letters are allowed as well."""
        return bool({ord("q"), ord("w")} <= allowed(matcher))
