"""Requests through an engine, step by step, and what is done meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework import LLM, PoolingParams, SamplingParams
from framework.engine.prepared import PreparedRequest

BESIDE = [7, 9, 7, 9, 11, 13, 7]
"""The prompt of requests that are of no interest themselves."""


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
        self._engine = llm._engine
        self._core: Any = llm._engine.client.core
        self._client = llm._engine.client
        self._acts = acts
        self._got: dict[str, list[Any]] = {}
        self._late: list[PreparedRequest] = []
        self._alone: Any = None

    def answers(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[Answer]:
        """One for each prompt.  Raises what the engine refuses."""
        if "embed" in self._acts:
            self._alone = self._vector_alone()
        for _ in range(2 if "twice" in self._acts else 1):
            requests = [
                self._engine.inputs.process(list(prompt), one)
                for prompt, one in zip(prompts, params, strict=True)
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
        got = (self._got[request.request_id] for request in requests)
        return not all(outputs and outputs[-1].finished for outputs in got)

    def step(self) -> None:
        self._client.step()
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
            beside = self._engine.inputs.process(BESIDE, params)
            self._client.add([beside])
            for _ in range(count):
                yield
            self._got[beside.request_id] = []
            self._client.drop([beside.request_id])
            del self._got[beside.request_id]

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
}


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
