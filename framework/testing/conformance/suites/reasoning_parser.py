"""The suite of kind `reasoning_parser`: what models think and answer, whole and in pieces.

How reasoning is marked it learns from the plugin's `example`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from framework.contracts.reasoning_parser import ReasoningParser
from framework.testing.byte_tokenizer import ByteTokenizer
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.suites.reasoning_base import (
    BECAUSE,
    WHY,
    Found,
    ReasoningBase,
    read,
)
from framework.testing.conformance.suites.text_parts import (
    AGAIN,
    LONG,
    cuts,
    note_text,
    prose,
    time_of_push,
)

STREAM = ("stream",)


class ReasoningParserSuite(ReasoningBase):
    """See ReasoningBase."""

    @clause(
        "REAS-001",
        'the example thinks "why" and answers "because"',
        layer=Layer.CONSTRUCT,
        of=STREAM,
    )
    def the_example_is_split(self) -> None:
        stream = self.stream()
        found = read(stream, [self.written()])
        wanted = Found(WHY, BECAUSE)
        expect(found == wanted, "the example is split otherwise", expected=wanted, found=found)
        ended: object = stream.ended
        expect(ended is True, "the reasoning has not ended", expected=True, found=ended)

    @clause("REAS-010", "a text is split alike wherever it is cut", of=STREAM)
    def cuts_change_nothing(self) -> None:
        for case in self.cases(6):
            for text in self.texts(case):
                whole = read(self.stream(), [text])
                for pieces in cuts(case, text):
                    note_text(case, text, pieces)
                    found = read(self.stream(), pieces)
                    expect(found == whole, "cut, it is another", expected=whole, found=found)

    @clause("REAS-011", "nothing is lost but marks and the white space around them", of=STREAM)
    def nothing_is_lost(self) -> None:
        for case in self.cases(6):
            line = prose(case, 8)
            for text in (line, self.written(line, line), f"{line} {self.written(line, line)}"):
                note_text(case, text)
                found = read(self.stream(), [text])
                both, bare = self.words(f"{found.reasoning}\n{found.content}"), self.words(text)
                expect(sorted(both) == sorted(bare), "words are lost", found=found)
            for text in (line, self.odd_prose()):
                note_text(case, text)
                found = read(self.stream(), [text])
                expect(found.reasoning + found.content == text, "another text", found=found)
        odd = self.odd_prose()
        found = read(self.stream(), [self.written(odd, odd)])
        kept = odd in found.reasoning and odd in found.content
        expect(kept, "a text is changed", expected=json.dumps(odd), found=found)

    @clause(
        "REAS-012",
        "reasoning that the end of the prompt opens is reasoning",
        needs="marks_begin",
        of=STREAM,
    )
    def prompts_open(self) -> None:
        before = self.marks()[0]
        for case in self.cases(2):
            for space in ("", "\n"):
                prompt = f"{prose(case, 4)}{before}{space}"
                text = self.written().removeprefix(before)
                case.note(prompt=json.dumps(prompt))
                found = read(self.stream(prompt), [text])
                wanted = Found(WHY, BECAUSE)
                expect(found == wanted, "the prompt opens it", expected=wanted, found=found)

    @clause(
        "REAS-013",
        "where the end of the prompt has closed the reasoning all is answer",
        needs="marks_begin",
        of=STREAM,
    )
    def prompts_close(self) -> None:
        before, between, _ = self.marks()
        for case in self.cases(2):
            prompt = f"{prose(case, 4)}{before}\n\n{between}\n\n"
            case.note(prompt=json.dumps(prompt))
            stream = self.stream(prompt)
            expect(stream.ended, "reasoning may still come", expected="ended, from the beginning")
            found = read(stream, [BECAUSE])
            wanted = Found("", BECAUSE)
            expect(found == wanted, "the prompt closes it", expected=wanted, found=found)

    @clause("REAS-014", "a prompt that opens nothing changes nothing", of=STREAM)
    def other_prompts_change_nothing(self) -> None:
        for case in self.cases(2):
            for text in self.texts(case):
                note_text(case, text)
                alone, found = (read(self.stream(p), [text]) for p in ("", f"{prose(case, 9)}\n"))
                expect(found == alone, "the prompt changes it", expected=alone, found=found)

    @clause(
        "REAS-015",
        "without a mark that begins it, the prompt never does",
        lacks="marks_begin",
        of=STREAM,
    )
    def prompts_mean_nothing(self) -> None:
        for case in self.cases(2):
            for prompt in ("<think>", "<think></think>", self.written()):
                case.note(prompt=json.dumps(prompt))
                found, wanted = read(self.stream(prompt), [self.written()]), Found(WHY, BECAUSE)
                expect(found == wanted, "the prompt changes it", expected=wanted, found=found)

    @clause("REAS-016", "nothing is lost of an output that is cut off, wherever that is", of=STREAM)
    def cut_outputs_stay(self) -> None:
        for case in self.cases(1):
            whole = self.written("wherefore", "therefore")
            for end in range(len(whole)):
                note_text(case, whole[:end])
                found = read(self.stream(), [whole[:end]])
                # Half a mark is none: finish gives back what was held.
                left = "".join(self.words(f"{found.reasoning}\n{found.content}"))
                wanted = "".join(self.words(whole[:end]))
                expect(left == wanted, "characters are lost", expected=wanted, found=found)

    @clause("REAS-017", "any text is taken: long, or of odd characters", of=STREAM)
    def any_text_is_taken(self) -> None:
        before, between, _ = self.marks()
        for case in self.cases(1):
            for odd in ("\x00\x1b\u2028\ufeff\ufffd\U0010ffff", "<" * 999, "", " " * 999):
                for text in (odd, before + odd, before + odd + between, self.written(odd, odd)):
                    note_text(case, f"{text[:60]}...")
                    read(self.stream(), [text])
                    read(self.stream(text), [text])

    @clause("REAS-018", "once it says that reasoning has ended, only answer comes", of=STREAM)
    def ended_is_kept(self) -> None:
        for case in self.cases(6):
            for text in (self.written(), *self.texts(case)):
                note_text(case, text)
                stream, ended = self.stream(), False
                for piece in (*text, None):
                    split = stream.finish() if piece is None else stream.push(piece)
                    expect(not (ended and split.reasoning), "reasoning comes", found=split)
                    expect(stream.ended or not ended, "it takes that back", expected="ended")
                    ended = stream.ended

    @clause(
        "REAS-019",
        "reasoning_ended says of ids what the stream says of their text",
        of=("reasoning_ended",),
    )
    def ids_say_the_same(self) -> None:
        tokenizer = ByteTokenizer()
        before, between, _ = self.marks()
        prompts = ("", f"{WHY} {before}", f"{WHY} {before}{between}")
        for case in self.cases(2):
            for text in (self.written(), *self.texts(case)):
                for prompt in prompts:
                    note_text(case, text)
                    case.note(prompt=json.dumps(prompt))
                    stream = self.stream(prompt)
                    stream.push(text)
                    ended = self._ended(prompt, text, tokenizer)
                    expect(ended is stream.ended, "other", expected=stream.ended, found=ended)

    def _ended(self, prompt: str, text: str, tokenizer: ByteTokenizer) -> bool:
        parser: ReasoningParser = self.new()
        ids: tuple[Sequence[int], ...] = tuple(map(tokenizer.encode, (prompt, text)))
        return parser.reasoning_ended(ids[0], ids[1], tokenizer)

    @clause("REAS-020", "outputs that run beside each other share no state", of=STREAM)
    def streams_are_apart(self) -> None:
        for case in self.cases(2):
            texts = [self.written(), prose(case, 6), self.written(prose(case, 2), "yes")]
            parser: ReasoningParser = self.new()
            streams = [parser.stream("") for _ in texts]
            splits = [
                [streams[index].push(text[place : place + 1]) for index, text in enumerate(texts)]
                for place in range(max(map(len, texts)))
            ]
            splits.append([stream.finish() for stream in streams])
            for index, text in enumerate(texts):
                note_text(case, text)
                alone = read(self.stream(), [text])
                parts = [row[index] for row in splits]
                found = Found(
                    "".join(part.reasoning for part in parts),
                    "".join(part.content for part in parts),
                )
                expect(found == alone, "beside others it is another", expected=alone, found=found)

    @clause("REAS-021", "an output that was given up leaves nothing behind", of=STREAM)
    def streams_begin_anew(self) -> None:
        for case in self.cases(1):
            text = self.written()
            for end in range(len(text)):
                note_text(case, text[:end])
                parser: ReasoningParser = self.new()
                parser.stream("").push(text[:end])
                found, alone = (read(s, [text]) for s in (parser.stream(""), self.stream()))
                expect(found == alone, "the next is another", expected=alone, found=found)

    @clause("REAS-022", "the mark of the example ends reasoning wherever it has got to", of=STREAM)
    def the_mark_ends_it(self) -> None:
        before, between, _ = self.marks()
        for case in self.cases(1):
            line = prose(case, 3)
            for end in range(len(line)):
                for half in {"", between[: len(between) // 2]}:
                    text = before + line[:end] + half
                    note_text(case, text)
                    stream = self.stream()
                    stream.push(text)
                    stream.push(between)
                    expect(stream.ended, "reasoning goes on", expected="ended, by the mark")

    @clause("REAS-030", "reasoning and answer are told while they come", must=False, of=STREAM)
    def text_is_told_early(self) -> None:
        before, between, _ = self.marks()
        for case in self.cases(1):
            line = prose(case, 50)
            stream = self.stream()
            for head in (before, between):
                stream.push(head)
                told = sum(len(s.reasoning) + len(s.content) for s in map(stream.push, line))
                expect(
                    2 * told > len(line),
                    "text that is no mark is held back, and a client sees nothing",
                    expected="all but what may begin a mark",
                    found=f"{told} of {len(line)} characters",
                )

    @clause(
        "REAS-031",
        "a push takes time by the length of the piece, not of the text so far",
        must=False,
        of=STREAM,
    )
    def pushes_are_quick(self) -> None:
        before, between, _ = self.marks()
        for head, what in ((before, "long reasoning"), (before + between, "a long answer")):
            seconds = time_of_push(self.now, self.stream().push, head + "x" * LONG)
            self.expect_quick(seconds, self.push_budget, f"a push is slow after {what}", AGAIN)
