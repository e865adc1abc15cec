"""`SamplingParams`: what a request may ask of sampling, with ranges and meaning.

The class is a plain value without heavy imports: front end, engine core, wire and runner
all read it.  `check(vocab_size)` holds the rules that need the model.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import compress
from operator import is_not
from typing import Any, Literal

import msgspec
from msgspec.structs import astuple

from framework.contracts.named import NamedFields, check_names
from framework.contracts.sampling_checks import CHECKS, check_together, invalid

GREEDY_BELOW = 1e-5


class OutputKind(StrEnum):
    """CUMULATIVE: all text so far; DELTA: what is new; FINAL_ONLY: one output at the end."""

    CUMULATIVE = "cumulative"
    DELTA = "delta"
    FINAL_ONLY = "final_only"


LogprobsMode = Literal["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"]


class SamplingParams(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, metaclass=NamedFields
):
    """Parameters of one request.  Invalid values raise `InputError` that names the field;
    types are checked too, and nothing is converted but the value of an `OutputKind`.

    n: outputs per prompt (>= 1; with greedy sampling only 1).
    temperature: finite, [0, 2]; below 1e-5 is greedy.
    top_p (0, 1]; top_k 0 or -1 off, else >= 1; min_p [0, 1], relative to the most probable.
    presence_penalty, frequency_penalty [-2, 2]: count output tokens only.
    repetition_penalty > 0, finite: counts prompt and output.
    seed: int64 or None; a seeded request gives the same tokens whatever its batch mates.
    stop: strings that end the output (cut unless include_stop_str_in_output), 16384
        characters in all; needs detokenize.
    stop_token_ids: ids that end the output; hidden from the text only if special.
    ignore_eos: the model's end-of-sequence ids do not end the output.
    max_tokens: >= 1, or 0 to only score a prompt; None: the rest of the context.
    min_tokens: until then end-of-sequence and stop ids are masked, stop strings are delayed.
    logprobs, prompt_logprobs: None off; k >= 0: the token's own and the k best (up to k + 1
        entries); -1: whole vocabulary.
    logit_bias: id -> value added to its logit, finite in float32.  bad_words: strings that
        must not be produced.  allowed_token_ids: all others are masked.
    structured_outputs: a mapping with exactly one of json, regex, choice, grammar,
        json_object, structural_tag.
    output_kind: an `OutputKind` or its value.
    truncate_prompt_tokens: keep this many of the prompt's last tokens, >= 1; -1: as many as leave
        room for max_tokens (for one where that is None).  None: a longer prompt is refused.
    stream_interval: >= 1; a stream brings the first token at once, then so many at a time.
    thinking_token_budget: >= 0; after so many tokens of reasoning the model is made to end it.
        None: no limit.  Needs a reasoning parser.
    extra_args: plugin name -> arguments, for logits processors and the like.

    Lists may be tuples.  Whatever is nested must be data that msgpack can carry.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    detokenize: bool = True
    logit_bias: dict[int, float] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    structured_outputs: dict[str, Any] | None = None
    output_kind: OutputKind = OutputKind.CUMULATIVE
    truncate_prompt_tokens: int | None = None
    stream_interval: int = 1
    thinking_token_budget: int | None = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        # A default is right: requests set few of the many fields, and come one after the other.
        for name in compress(_NAMES, map(is_not, astuple(self), _DEFAULTS)):
            _CHECKS[name](self, name)
        check_together(self)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def check(self, vocab_size: int) -> None:
        """Raise InputError if an id lies outside the vocabulary."""
        for name in ("stop_token_ids", "allowed_token_ids", "logit_bias"):
            for token in getattr(self, name) or ():
                if not 0 <= token < vocab_size:
                    raise invalid(name, f"token ids in [0, {vocab_size})", token)
        for name in ("logprobs", "prompt_logprobs"):
            if (getattr(self, name) or 0) > vocab_size:
                raise invalid(name, f"at most the vocabulary of {vocab_size}", getattr(self, name))

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with `changes`, validated again."""
        check_names(type(self), changes)
        return msgspec.structs.replace(self, **changes)


def _set_kind(p: SamplingParams, name: str) -> None:
    kind: object = p.output_kind
    if type(kind) is OutputKind:
        return
    if not isinstance(kind, str) or kind not in list(OutputKind):
        raise invalid(name, f"one of {[kind.value for kind in OutputKind]}", kind)
    # A frozen struct: the plain string becomes the member before anybody has seen it.
    msgspec.structs.force_setattr(p, name, OutputKind(kind))


_CHECKS = {**CHECKS, "output_kind": _set_kind}
_NAMES = SamplingParams.__struct_fields__
_DEFAULTS = tuple(field.default for field in msgspec.structs.fields(SamplingParams))
