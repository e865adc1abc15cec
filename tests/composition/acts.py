"""Requests through an engine, step by step, and what is done meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework import LLM, PoolingParams, SamplingParams
from framework.engine.prepared import PreparedRequest
from framework.engine.request_options import RequestOptions
from framework.errors import InputError

BESIDE = [7, 9, 7, 9, 11, 13, 7]
"""The prompt of requests that are of no interest themselves."""
ADAPTERS = ("one", "two")
LOADED = "beside"
"""A name under which these are loaded while requests run."""
SAID = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, output_kind="final_only")


@dataclass(kw_only=True)
class Answer:
    """What a client has got of one request.  seeds: of its outputs, as they were derived.
    pieces: how many tokens came at a time, by output."""

    token_ids: list[list[int]]
    texts: list[str]
    reasons: list[tuple[str | None, int | str | None]]
    logprobs: list[list[Any] | None]
    prompt_token_ids: list[int]
    prompt_logprobs: list[Any] | None = None
    seeds: tuple[int, ...] = ()
    pieces: list[list[int]] = field(default_factory=list)

    @property
    def told(self) -> tuple[Any, ...]:
        """What a client sees but for scores."""
        return self.token_ids, self.texts, self.reasons

    @property
    def scores(self) -> list[Any]:
        """Log-probabilities, those of the prompt last; None for what has none."""
        return [
            None if some is None else [{t: e.logprob for t, e in (at or {}).items()} for at in some]
            for some in (*self.logprobs, self.prompt_logprobs)
        ]


class Run:
    """Some requests in one engine, until all have ended."""

    def __init__(self, llm: LLM, acts: Sequence[str] = ()) -> None:
        self._llm, self._engine = llm, llm._engine
        self._core: Any = llm._engine.client.core
        self._client = llm._engine.client
        self._acts = acts
        self._got: dict[str, list[Any]] = {}
        self._late: list[PreparedRequest] = []
        self._alone: Any = None
        self._adapted: list[list[int]] = []

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        adapters: Sequence[str | None] | None = None,
    ) -> list[Answer]:
        """One for each prompt.  adapters: one for each, None for the model itself.  Raises what
        the engine refuses."""
        adapters = adapters or [None] * len(prompts)
        if "embed" in self._acts:
            self._alone = self._vector_alone()
        if "adapters" in self._acts:
            self._adapted = self._adapted_alone()
        for some in rounds(adapters) if "twice" in self._acts else [adapters]:
            requests = [
                self._engine.inputs.process(list(prompt), one, RequestOptions(adapter=adapter))
                for prompt, one, adapter in zip(prompts, params, some, strict=True)
            ]
            made = self._all(requests)
        return made

    def _all(self, requests: Sequence[PreparedRequest]) -> list[Answer]:
        first = len(requests) // 2 if "late" in self._acts else len(requests)
        self._got = {request.request_id: [] for request in requests}
        self._late = list(requests[first:])
        self._client.add(requests[:first])
        doing = [_ACTS[act](self) for act in self._acts if act in _ACTS]
        while doing or self._late or self._open(requests):
            if self._core.has_work():
                self.step()
            else:
                self._take()  # what came while an act called the core
            doing = [one for one in doing if next(one, "done") != "done"]
            if not self._core.has_work() and self._late:
                self.arrive()
        self._client.settle()
        self._core.check_integrity()
        return [
            answer_of(
                request.sampling,
                self._got[request.request_id],
                [entry.seed for entry in request.inputs],
            )
            for request in requests
        ]

    def _open(self, requests: Sequence[PreparedRequest]) -> bool:
        return not all(map(self._ended, requests))

    def step(self) -> None:
        self._client.step()
        self._take()

    def _take(self) -> None:
        for request_id, outputs in self._got.items():
            while (output := self._client.take(request_id)) is not None:
                outputs.append(output)

    # What is done between steps: a step for each `yield`.

    def arrive(self) -> None:
        late, self._late = self._late, []
        self._client.add(late)

    def late(self) -> Generator[None]:
        for _ in range(3):
            yield
        self.arrive()

    def pause(self) -> Generator[None]:
        for _ in range(2):
            for _ in range(3):
                yield
            self._core.pause()
            if self._core.has_work():
                self.step()  # what is in flight
                before = self._numbers()
                self.step()
                self.step()
                assert self._numbers() == before, "it goes on though it was told to pause"
            self._core.resume()

    def _numbers(self) -> list[int]:
        return [len(outputs) for outputs in self._got.values()]

    def sleep(self) -> Generator[None]:
        for level in (1, 2):
            for _ in range(3):
                yield
            self._core.sleep(level)
            self._core.wake_up()

    def abort(self) -> Generator[None]:
        for count in (1, 4):
            params = SamplingParams(max_tokens=40, ignore_eos=True, seed=1, n=2)
            loaded = [each.name for each in self._llm.list_adapters()]
            beside = self._beside(params, loaded[0] if loaded else None)
            for _ in range(count):
                yield
            self._client.drop([beside.request_id])
            del self._got[beside.request_id]

    def _beside(self, params: SamplingParams, adapter: str | None) -> PreparedRequest:
        """One that is of no interest itself, begun."""
        request = self._engine.inputs.process(BESIDE, params, RequestOptions(adapter=adapter))
        self._got[request.request_id] = []
        self._client.add([request])
        return request

    def _adapted_alone(self) -> list[list[int]]:
        """What is said beside with each of two adapters."""
        found = []
        for name in ADAPTERS:
            request = self._beside(SAID, name)
            output = self._client.wait(request.request_id)
            found.append(list(output.outputs[0].token_ids))
            del self._got[request.request_id]
        return found

    def adapters(self) -> Generator[None]:
        """A name for one adapter and then for another, while a request goes on with the first."""
        begun = []
        for name in ADAPTERS:
            while not self._load(name):
                yield  # all places are taken
            begun.append(self._beside(SAID, LOADED))
            yield
        self._llm.unload_adapter(LOADED)
        while not all(self._ended(request) for request in begun):
            yield
        said = [self._got.pop(request.request_id)[-1].outputs[0] for request in begun]
        found = [list(output.token_ids) for output in said]
        assert found == self._adapted

    def _load(self, name: str) -> bool:
        """Whether there was a place for it."""
        root = self._llm.config.adapters.lora_modules[name]
        try:
            self._llm.load_adapter(LOADED, root, load_inplace=True)
        except InputError as error:
            if "make place" not in str(error):
                raise
            return False
        return True

    def _ended(self, request: PreparedRequest) -> bool:
        outputs = self._got[request.request_id]
        return bool(outputs) and outputs[-1].finished

    def _vector_alone(self) -> Any:
        _, [request] = self._engine.inputs.ask("embedding", [BESIDE], PoolingParams())
        self._client.add([request])
        return self._client.wait(request.request_id).pooled

    def embed(self) -> Generator[None]:
        """A prompt may be computed in pieces: of these a sum is rounded otherwise."""
        vectors = []
        for _ in range(2):
            yield
            _, [beside] = self._engine.inputs.ask("embedding", [BESIDE], PoolingParams())
            outputs = self._got[beside.request_id] = []
            self._client.add([beside])
            while not outputs:
                yield
            del self._got[beside.request_id]
            vectors.append(outputs[-1].pooled)
        for vector in vectors:
            np.testing.assert_allclose(vector, self._alone, atol=1e-6)


_ACTS: Mapping[str, Callable[[Run], Generator[None]]] = {
    "late": Run.late,
    "pause": Run.pause,
    "sleep": Run.sleep,
    "abort": Run.abort,
    "embed": Run.embed,
    "adapters": Run.adapters,
}


def rounds(adapters: Sequence[str | None]) -> list[Sequence[str | None]]:
    """Of requests that come again: first each prompt with what is another's adapter, if there are
    any, of which nothing may be found later."""
    others = [*adapters[1:], adapters[0]]
    return [others, adapters, adapters] if any(adapters) else [adapters, adapters]


def answer_of(params: SamplingParams, outputs: Sequence[Any], seeds: Sequence[int] = ()) -> Answer:
    """Of a stream the pieces, put together."""
    delta = params.output_kind == "delta"
    parts: list[list[Any]] = [[] for _ in range(params.n)]
    for output in outputs:
        for one in output.outputs:
            parts[one.index].append(one)
    parts = parts if delta else [some[-1:] for some in parts]
    asked = params.logprobs is not None
    told = [o.prompt_logprobs for o in outputs if o.prompt_logprobs is not None]
    return Answer(
        token_ids=[[token for one in some for token in one.token_ids] for some in parts],
        texts=["".join(one.text for one in some) for some in parts],
        reasons=[(some[-1].finish_reason, some[-1].stop_reason) for some in parts],
        logprobs=[[at for one in some for at in one.logprobs] if asked else None for some in parts],
        prompt_token_ids=list(outputs[-1].prompt_token_ids),
        prompt_logprobs=told[-1] if told else None,
        seeds=tuple(seeds),
        pieces=[[len(one.token_ids) for one in some] for some in parts],
    )
