"""The suite of kind `io_processor`: requests that are read, in threads, and their answers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.engine.outputs import RequestOutput
from framework.errors import FrameworkError, InputError, TooLongError
from framework.testing.byte_tokenizer import ByteTokenizer
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.io_parts import (
    HOSTILE,
    NoRoom,
    OwnTokenizer,
    ended,
    outputs_of,
    together,
)

THREADS, ROUNDS = 4, 25


class IOProcessorSuite(Suite):
    """Requests are the `examples` of the class.  Override `place` for a processor that reads what
    a tokenizer of bytes cannot tell; max_tokens: of a prompt."""

    kind = "io_processor"
    ordinary = ("examples_are_read", "outputs_are_answered")
    max_tokens: ClassVar[int] = 4096

    def requests(self) -> Sequence[Any]:
        """What the plugin says that it can read."""
        found: Sequence[Any] = copy.deepcopy(self.new().examples)
        expect(len(found), "it names no request that it can read", expected="examples")
        return found

    def params(self, plugin: IOProcessor) -> SamplingParams | PoolingParams:
        """The usual ones of its task."""
        return PoolingParams() if plugin.task == "embed" else SamplingParams()

    def place(self, plugin: IOProcessor, tokenizer: ByteTokenizer, **more: Any) -> Place:
        """Where a request is read."""
        params = self.params(plugin)
        return Place(tokenizer=tokenizer, params=params, max_tokens=self.max_tokens, **more)

    def read(self, plugin: IOProcessor, request: Any) -> Reading:
        """A reading that an engine would take."""
        return _sound(plugin.read(request, self.place(plugin, ByteTokenizer())))

    @clause("IO-001", "task is generate or embed", of=())
    def task_is_known(self) -> None:
        task = self.new().task
        expect(task in ("generate", "embed"), "an unknown task", found=task)

    @clause("IO-002", "its examples are read, each as one prompt or more", of=("read",))
    def examples_are_read(self) -> None:
        for request in self.requests():
            reading = self.read(self.new(), request)
            # An engine refuses these; of a request that is wrong they may come all the same.
            empty = [prompt for prompt in reading.prompts if not prompt.ids]
            expect(not empty, "a prompt without ids", expected="at least one", found=request)

    @clause("IO-003", "a request stays as it is", of=("read", "answer"))
    def requests_are_left_alone(self) -> None:
        plugin = self.new()
        for request in self.requests():
            before = copy.deepcopy(request)
            reading = self.read(plugin, request)
            plugin.answer(request, reading, outputs_of(reading, plugin.task))
            expect(request == before, "the request was changed", expected=before, found=request)
        for request in self._hostile():
            known = repr(request)  # of what does not equal itself, too
            with suppress(Exception):  # another clause tells it
                self.read(plugin, request)
            expect(repr(request) == known, "it was changed", expected=known, found=request)

    @clause("IO-004", "whatever comes over a network is read, or an InputError", of=("read",))
    def hostile_requests_are_input_errors(self) -> None:
        plugin = self.new()
        for request in self._hostile():
            try:
                self.read(plugin, request)
            except InputError:
                continue
            except Violation:
                raise
            except Exception as error:
                raise Violation(
                    f"{request!r:.80} raises {type(error).__name__}: {error}\n"
                    "  expected: a reading, or InputError with the parameter"
                ) from error

    @clause("IO-005", "an InputError names the parameter", of=("read",))
    def errors_name_the_parameter(self) -> None:
        plugin = self.new()
        for request in self._hostile():
            try:
                plugin.read(request, self.place(plugin, ByteTokenizer()))
            except InputError as error:
                expect(error.parameter, "no parameter", expected="its name", found=error.message)
            except Exception:  # another clause tells it
                continue

    def _hostile(self) -> Iterator[Any]:
        """Requests of every sort, and the examples with one part exchanged."""
        yield from HOSTILE
        for request in self.requests():
            if isinstance(request, dict):
                for key in request:
                    yield from ({**request, key: value} for value in HOSTILE)
                yield {**request, "no such key": 1}
                yield from ({k: request[k] for k in request if k != key} for key in request)
            elif isinstance(request, list):
                yield from ([*request, value] for value in HOSTILE)

    @clause("IO-006", "a request is read alike, whatever was read before", of=("read",))
    def readings_do_not_depend_on_others(self) -> None:
        plugin, requests = self.new(), self.requests()
        first = [self.read(plugin, request) for request in requests]
        for request in HOSTILE:
            try:
                plugin.read(request, self.place(plugin, ByteTokenizer()))
            except Exception:  # another clause tells it
                continue
        for request, before in zip(reversed(requests), reversed(first), strict=True):
            again = self.read(plugin, request)
            expect(again == before, "read in another way", expected=before, found=again)

    @clause("IO-007", "threads read at one time, each with its own tokenizer", of=("read",))
    def threads_do_not_meet(self) -> None:
        plugin, requests, first = self.new(), self.requests(), OwnTokenizer()
        place = self.place(plugin, first)
        expected = [_sound(plugin.read(request, place)) for request in requests]
        tokenizers = [first]

        def work() -> None:
            tokenizer = OwnTokenizer()
            tokenizers.append(tokenizer)
            place = self.place(plugin, tokenizer)
            for _ in range(ROUNDS):
                found = [plugin.read(request, place) for request in requests]
                expect(found == expected, "another reading than alone", expected=expected)

        together([work] * THREADS)
        met = any(tokenizer.strangers for tokenizer in tokenizers)
        expect(not met, "a tokenizer was used by a thread that is not its own")

    @clause("IO-008", "a text goes to the limit before it is tokenized", of=("read",))
    def limits_come_first(self) -> None:
        plugin = self.new()
        for request in self.requests():
            tokenizer = ByteTokenizer()
            with suppress(TooLongError):
                plugin.read(request, self.place(plugin, tokenizer, limit=NoRoom()))
            expect(
                not tokenizer.encoded,
                "a text was tokenized that the limit had not seen, or had refused",
                expected="place.limit.check(text) before place.tokenizer.encode(text)",
                found=f"{request!r:.80}",
            )

    @clause(
        "IO-009",
        "a text is read as it was written: neither case nor composed letters are made alike",
        must=False,
        of=("read",),
    )
    def texts_are_not_folded(self) -> None:
        """Of texts that are read at all: another one gives another reading."""
        plugin = self.new()

        def reading(request: Any, key: str, text: str) -> Reading | None:
            try:
                return self.read(plugin, {**request, key: text})
            except FrameworkError:
                return None

        for request in self.requests():
            for key in request if isinstance(request, dict) else ():
                first, other = (reading(request, key, text) for text in ("Ab\u00e9", "cd\u00e9"))
                if first is None or other is None or first == other:
                    continue
                for what, text in (("case", "ab\u00e9"), ("composed letters", "Abe\u0301")):
                    again = reading(request, key, text)
                    expect(
                        again is None or again.prompts != first.prompts,
                        f"texts in {key!r} that differ in {what} are read alike",
                        expected="what the client wrote; folding is the tokenizer's",
                        found=f"'Ab\u00e9' and {text!r}",
                    )

    @clause("IO-010", "finished outputs are answered", of=("answer",))
    def outputs_are_answered(self) -> None:
        plugin = self.new()
        for request in self.requests():
            reading = self.read(plugin, request)
            plugin.answer(request, reading, outputs_of(reading, plugin.task))

    @clause(
        "IO-011",
        "what the engine failed is answered, or a FrameworkError",
        of=("answer",),
    )
    def errors_are_answered(self) -> None:
        plugin = self.new()
        for request in self.requests():
            reading = self.read(plugin, request)
            for reason in ("error", "abort"):
                outputs = outputs_of(reading, plugin.task)
                outputs[-1] = ended(reading.prompts[-1], reason)
                try:
                    plugin.answer(request, reading, outputs)
                except FrameworkError:
                    continue

    @clause(
        "IO-014",
        "where the engine refused what was asked, an error says that the request is bad",
        of=("answer",),
    )
    def refusals_are_input_errors(self) -> None:
        plugin = self.new()
        for request in self.requests():
            reading = self.read(plugin, request)
            outputs = outputs_of(reading, plugin.task)
            outputs[-1] = ended(reading.prompts[-1], "error", refused=True)
            try:
                plugin.answer(request, reading, outputs)
            except InputError:
                continue
            except FrameworkError as error:
                raise Violation(
                    f"a refusal becomes {type(error).__name__}: {error}\n"
                    "  expected: InputError; the `error` of an output is what to raise"
                ) from error

    @clause("IO-012", "an answer belongs to its request, in whatever order", of=("answer",))
    def answers_do_not_depend_on_others(self) -> None:
        plugin, requests = self.new(), self.requests()
        alone = []
        for request in requests:
            fresh = self.new()
            alone.append(self._answered(fresh, request, self.read(fresh, request)))
        readings = [self.read(plugin, request) for request in requests]
        for place in reversed(range(len(requests))):
            found = self._answered(plugin, requests[place], readings[place])
            expect(found == alone[place], "another answer", expected=alone[place], found=found)

    def _answered(self, plugin: IOProcessor, request: Any, reading: Reading) -> str:
        """What is answered, as text: answers may be of any class."""
        return repr(plugin.answer(request, reading, outputs_of(reading, plugin.task)))

    @clause("IO-013", "outputs stay as they are", of=("answer",))
    def outputs_are_left_alone(self) -> None:
        plugin = self.new()
        for request in self.requests():
            reading = self.read(plugin, request)
            outputs: list[RequestOutput] = outputs_of(reading, plugin.task)
            before = repr(outputs)
            plugin.answer(request, reading, outputs)
            expect(repr(outputs) == before, "the outputs were changed", found=f"{outputs!r:.200}")


def _sound(reading: object) -> Reading:
    """Violation for what no engine would take."""
    expect(isinstance(reading, Reading), "no Reading", found=reading)
    assert isinstance(reading, Reading)
    fine = isinstance(reading.prompts, tuple) and len(reading.prompts) > 0
    expect(fine, "no prompts", expected="a tuple of at least one", found=reading.prompts)
    for prompt in reading.prompts:
        expect(isinstance(prompt, EnginePrompt), "no EnginePrompt", found=prompt)
        plain = isinstance(prompt.ids, list) and all(type(i) is int and i >= 0 for i in prompt.ids)
        expect(plain, "ids that are none", expected="a list of int >= 0", found=prompt.ids)
        for text in (prompt.text, prompt.salt):
            expect(isinstance(text, str | None), "no text", expected="str or None", found=text)
    params: object = reading.params
    known = isinstance(params, SamplingParams | PoolingParams | None)
    expect(known, "unknown parameters", expected="SamplingParams or PoolingParams", found=params)
    return reading
