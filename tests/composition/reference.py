"""What an answer has to be, by the definition of each parameter and nothing else.

It knows of no batch, no cache and no step: Transformers gives the logits after each prefix of an
answer, and the token that came has to be the one that the parameters call for there, by a plain
computation in float64 with the numbers of (seed, position).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framework import SamplingParams
from framework.contracts.structured_output import Matcher, StructuredOutput, vocabulary_of
from framework.contracts.structures import grammar_of
from framework.contracts.tokenizer import Tokenizer
from framework.core.random import derive_seed, uniforms
from tests.composition.acts import Answer
from tests.composition.masks import Masks, share_of, stop_ids_of

F64 = npt.NDArray[np.float64]
EOS = 259
SURE = 1e-3
"""Logits of Transformers differ from ours by less."""


class Expected:
    """Answers of one model.  model: in Transformers.  backends: of grammars, by name."""

    def __init__(
        self, model: Any, tokenizer: Tokenizer, backends: Mapping[str, StructuredOutput]
    ) -> None:
        self._model = model
        self._bytes = [tokenizer.token_bytes(token) for token in range(EOS + 1)]
        self._ids = {data: token for token, data in enumerate(self._bytes) if len(data) == 1}
        self._backends = backends
        self._vocabulary = vocabulary_of(tokenizer, EOS + 1, [EOS])
        self._grammars: dict[str, Any] = {}

    def check(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        options: Mapping[str, Any],
        answer: Answer,
    ) -> None:
        """Asserts that `answer` is the one to this request, in an engine with these options."""
        if params.truncate_prompt_tokens is not None:
            prompt = prompt[-params.truncate_prompt_tokens :]
        assert answer.prompt_token_ids == list(prompt)
        assert len(answer.token_ids) == params.n
        assert answer.seeds[1:] == tuple(
            derive_seed(answer.seeds[0], index) for index in range(1, params.n)
        )
        if params.seed is not None:
            assert answer.seeds[0] == params.seed % 2**64
        for index, tokens in enumerate(answer.token_ids):
            raw = self._logits([*prompt, *tokens])
            after = raw[len(prompt) - 1 :]
            stuck = answer.reasons[index][0] == "error"
            changed = [
                *self._tokens(prompt, params, options, tokens, after, answer.seeds[index], stuck)
            ]
            if stuck:  # one asks for what another one forbids
                assert "no token is left to choose" in str(answer.reasons[index][1])
            else:
                self._check_end(params, tokens, answer, index)
                self._check_text(params, tokens, answer.texts[index], answer.reasons[index][1])
            seen = changed if options.get("logprobs_mode") == "processed_logprobs" else after
            self._check_logprobs(params.logprobs, tokens, seen, answer.logprobs[index])
            if params.output_kind == "delta":
                assert all(n >= params.stream_interval for n in answer.pieces[index][1:-1])
        told = answer.prompt_logprobs
        if params.prompt_logprobs is None:
            assert told is None
        else:
            assert told is not None
            assert told[0] is None
            assert len(told) == len(prompt)
            raw = self._logits(prompt)
            self._check_logprobs(params.prompt_logprobs, prompt[1:], raw[:-1], told[1:])

    def shares(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        options: Mapping[str, Any],
        answer: Answer,
    ) -> list[tuple[float, float]]:
        """What of [0, 1) stands for each token that was drawn, all outputs one after another."""
        if params.truncate_prompt_tokens is not None:
            prompt = prompt[-params.truncate_prompt_tokens :]
        found: list[tuple[float, float]] = []
        for tokens in answer.token_ids:
            masks = self._masks(params, options)
            logits = self._logits([*prompt, *tokens])[len(prompt) - 1 :]
            for place, token in enumerate(tokens):
                row = logits[place].copy()
                self._change(row, params, options, prompt, tokens[:place], masks)
                found.append(share_of(self._filtered(row, params)[1], token))
                masks.take(token)
        return found

    def _logits(self, tokens: Sequence[int]) -> F64:
        import torch

        with torch.no_grad():
            found: F64 = self._model(torch.tensor([list(tokens)])).logits[0].double().numpy()
        return found

    # Tokens

    def _tokens(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        options: Mapping[str, Any],
        tokens: Sequence[int],
        logits: F64,
        seed: int,
        stuck: bool,
    ) -> Iterator[F64]:
        """The logits from which each token was taken, after all changes.  stuck: all are forbidden
        after the last one."""
        state = self._masks(params, options)
        for place, token in enumerate(tokens):
            row = logits[place].copy()
            self._change(row, params, options, prompt, tokens[:place], state)
            if params.greedy:
                assert row[token] >= row.max() - SURE, (place, token, int(row.argmax()))
            else:
                scaled, kept = self._filtered(row, params)
                assert kept[token] > 0, f"token {token} at {place} was dropped by a filter"
                low, high = share_of(kept, token)
                u = float(uniforms(np.array([seed], np.uint64), [len(prompt) + place])[0])
                assert low - SURE <= u <= high + SURE, (place, token)
                row = np.where(kept > 0, scaled, -np.inf)
            yield row
            state.take(token)
        if stuck:
            row = logits[len(tokens)].copy()
            self._change(row, params, options, prompt, tokens, state)
            assert row.max() == -np.inf, "there are tokens to choose from"

    def _change(
        self,
        row: F64,
        params: SamplingParams,
        options: Mapping[str, Any],
        prompt: Sequence[int],
        outputs: Sequence[int],
        masks: Masks,
    ) -> None:
        forbidden = np.zeros(len(row), bool)
        if params.allowed_token_ids is not None:
            forbidden[:] = True
            forbidden[params.allowed_token_ids] = False
        allowed = masks.allowed()
        if allowed is not None:
            forbidden |= ~allowed
        for word in self._words(params):
            if tuple(outputs[len(outputs) - len(word) + 1 :]) == word[:-1] or len(word) == 1:
                forbidden[word[-1]] = True
        if len(outputs) < params.min_tokens:
            forbidden[list(stop_ids_of(params, EOS))] = True
        row[forbidden] = -np.inf
        for token, bias in (params.logit_bias or {}).items():
            row[token] += bias
        if "even" in options.get("logits_processors", ()):
            row[::2] += 2.0
        raised = (params.extra_args or {}).get("raised", [])
        if len(outputs) % 2 == 0:
            row[raised] += 6.0
        for token in {*prompt, *outputs}:
            factor = params.repetition_penalty
            row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
        for token in set(outputs):
            count = outputs.count(token)  # type: ignore[attr-defined]
            row[token] -= params.presence_penalty + params.frequency_penalty * count

    def _words(self, params: SamplingParams) -> set[tuple[int, ...]]:
        words = params.bad_words or ()
        texts = {one for word in words for one in (word, word.lstrip(" "), f" {word.lstrip(' ')}")}
        return {tuple(self._ids[bytes([b])] for b in text.encode()) for text in texts if text}

    def _filtered(self, row: F64, params: SamplingParams) -> tuple[F64, F64]:
        """(logits over the temperature, probabilities with 0 for what filters drop)."""
        scaled = (row - row.max()) / params.temperature
        mass = np.exp(scaled) / np.exp(scaled).sum()
        mass[mass < params.min_p * mass.max()] = 0
        order = np.argsort(-mass, kind="stable")
        if params.top_k > 0:
            mass[order[params.top_k :]] = 0
        if params.top_p < 1:
            reached = np.cumsum(mass[order]) / mass.sum()
            mass[order[1 + int(np.searchsorted(reached, params.top_p)) :]] = 0
        return scaled, mass

    def _masks(self, params: SamplingParams, options: Mapping[str, Any]) -> Masks:
        return Masks(
            self._bytes,
            EOS,
            thinks="reasoning_parser" in options,
            budget=params.thinking_token_budget,
            matcher=self._matcher(params, options),
        )

    def _matcher(self, params: SamplingParams, options: Mapping[str, Any]) -> Matcher | None:
        """At the start of the grammar, if there is one."""
        if params.structured_outputs is None:
            return None
        name = options["structured_output"]
        grammar = grammar_of(params.structured_outputs)
        key = f"{name} {grammar.key}"
        if key not in self._grammars:
            backend = self._backends[name]
            compiled = backend.compile(grammar, self._vocabulary)
            self._grammars[key] = backend.load(compiled, self._vocabulary)
        matcher: Matcher = self._grammars[key].matcher()
        return matcher

    # Ends, texts, log-probabilities

    def _check_end(
        self, params: SamplingParams, tokens: Sequence[int], answer: Answer, index: int
    ) -> None:
        reason, stop = answer.reasons[index]
        assert not set(tokens[:-1]) & stop_ids_of(params, EOS), "it went on after an end"
        if tokens and tokens[-1] in stop_ids_of(params, EOS):
            cut = self._stopped(params, tokens)
            own = tokens[-1] if tokens[-1] != EOS or params.ignore_eos else None
            assert (reason, stop) == ("stop", own if cut is None else cut[1])
        elif reason == "stop":
            assert stop in params.stop_strings
        else:
            assert (reason, stop) == ("length", None)
            assert len(tokens) == params.max_tokens

    def _stopped(self, params: SamplingParams, tokens: Sequence[int]) -> tuple[str, str] | None:
        """(the text up to the first stop string, that string), if one is complete."""
        decoder, text = codecs.getincrementaldecoder("utf-8")("replace"), ""
        for number, token in enumerate(tokens, 1):
            last = number == len(tokens)
            shown = self._shown(params, token)
            for char in decoder.decode(shown) + (decoder.decode(b"", True) if last else ""):
                text += char
                found = [s for s in params.stop_strings if text.endswith(s)]
                if found and number > params.min_tokens:
                    assert last, "it went on after a stop string"
                    end = text if params.include_stop_str_in_output else text[: -len(found[0])]
                    return end, found[0]
        return None

    def _check_text(
        self, params: SamplingParams, tokens: Sequence[int], text: str, stop: object
    ) -> None:
        whole = b"".join(self._shown(params, token) for token in tokens)
        if not params.detokenize:
            assert text == ""
            return
        cut = self._stopped(params, tokens)
        if isinstance(stop, str):
            assert (text, stop) == cut
        else:
            assert cut is None
            assert text == whole.decode("utf-8", "replace")

    def _shown(self, params: SamplingParams, token: int) -> bytes:
        hidden = params.skip_special_tokens and token >= 256
        return b"" if hidden else self._bytes[token]

    def _check_logprobs(
        self, asked: int | None, tokens: Sequence[int], logits: Any, told: list[Any] | None
    ) -> None:
        if asked is None:
            assert told is None
            return
        assert told is not None
        assert len(told) == len(tokens)
        for place, (token, entries) in enumerate(zip(tokens, told, strict=True)):
            row = logits[place]
            peak = row.max()
            values = row - peak - np.log(np.exp(row - peak).sum())
            least = np.sort(values)[-asked] if asked else np.inf
            assert len(entries) in (asked, asked + 1)
            assert token in entries
            for one, entry in entries.items():
                if np.isfinite(values[one]):
                    assert abs(entry.logprob - values[one]) < SURE, (place, one)
                    assert one == token or values[one] >= least - SURE, (place, one)
