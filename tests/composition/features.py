"""The features of the matrix: one list, from which its tests and docs/composition.md come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

Value = Any
Fields = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One thing that a user can ask for.

    asks: fields of SamplingParams.  options: keywords of LLM; a text in braces is the folder of
    that name, see `models.Models`.  acts: what is done while requests run, see `acts`.
    changes: an output may differ from that without it; otherwise it must be the same to the bit.
    needs: options under which alone it means anything; they change nothing by themselves.
    adapters: by request, None for the model itself.
    """

    name: str
    asks: Fields = field(default_factory=dict)
    options: Fields = field(default_factory=dict)
    acts: tuple[str, ...] = ()
    changes: bool = True
    needs: Fields = field(default_factory=dict)
    adapters: tuple[str | None, ...] = ()

    @property
    def wanted(self) -> dict[str, Value]:
        """Its options, with those that it needs."""
        return {**self.options, **self.needs}


def request(name: str, changes: bool = True, needs: Fields | None = None, **asks: Any) -> Feature:
    """A field of a request, or some."""
    return Feature(name=name, asks=asks, changes=changes, needs=needs or {})


def engine(name: str, changes: bool = False, **options: Any) -> Feature:
    """An option of the engine, or some."""
    return Feature(name=name, options=options, changes=changes)


def drafts(name: str, method: str, model: str | None = None, **more: Any) -> Feature:
    """A speculative proposer."""
    said = {"method": method, "num_speculative_tokens": 4, **more}
    if model is not None:
        said["model"] = model
    return engine(f"drafts: {name}", speculative_config=said)


def acted(name: str, *acts: str, **options: Any) -> Feature:
    """Something that happens while requests run."""
    return Feature(name=name, acts=acts, options=options, changes=False)


SCHEMA = {"type": "array", "items": {"enum": ["ab", 7]}, "minItems": 2, "maxItems": 3}
LLGUIDANCE, OUTLINES = ({"structured_output": name} for name in ("llguidance", "outlines_core"))
THINKS = {"reasoning_parser": "deepseek_r1"}


LORA = {"enable_lora": True, "lora_modules": {"one": "{one}", "two": "{two}"}}


def processor(name: str, made: str) -> Fields:
    """The options that activate a logits processor of `plugins`."""
    return {
        "plugins": {f"logits_processor:{name}": f"tests.composition.plugins:{made}"},
        "logits_processors": (name,),
    }


FEATURES: tuple[Feature, ...] = (
    # How tokens are chosen
    request("greedy", temperature=0.0),
    request("temperature and seed", temperature=0.8, seed=11),
    request("without a seed", seed=None),
    request("top_k", top_k=20),
    request("top_p", top_p=0.7),
    request("min_p", min_p=0.05),
    request("presence_penalty", presence_penalty=1.5),
    request("frequency_penalty", frequency_penalty=1.5),
    request("repetition_penalty", repetition_penalty=1.6),
    request("logit_bias", logit_bias={40: 6.0, 64: 5.0, 65: -100.0}),
    request("bad_words", bad_words=["a", "e", "AB", "th", "zZ", "\n"]),
    request("allowed_token_ids", allowed_token_ids=[*range(30, 94), 259]),
    request("n", n=3),
    request(
        "logits processor of a request",
        needs=processor("raised", "Raised"),
        extra_args={"raised": [33, 70, 71]},
    ),
    # When they end
    request("min_tokens", min_tokens=9),
    request("max_tokens", max_tokens=10),
    request("stop", stop=["b", "Z", "<", "x", "1", "AB", "=", "}", "k"]),
    request("stop_token_ids", stop_token_ids=[*range(8, 30, 2), *range(120, 140)]),
    request("ignore_eos", ignore_eos=True),
    # What is told of them
    request("logprobs", logprobs=3, changes=False),
    request("prompt_logprobs", prompt_logprobs=2, changes=False),
    request("detokenize=False", detokenize=False),
    request("skip_special_tokens=False", skip_special_tokens=False),
    request("include_stop_str_in_output", include_stop_str_in_output=True),
    request("stream", output_kind="delta", changes=False),
    request("stream_interval", output_kind="delta", stream_interval=5, changes=False),
    request("truncate_prompt_tokens", truncate_prompt_tokens=5),
    # Masks of participants
    request("json (llguidance)", needs=LLGUIDANCE, structured_outputs={"json": SCHEMA}),
    request("regex (llguidance)", needs=LLGUIDANCE, structured_outputs={"regex": "[a-f]{3,9}[.]"}),
    request(
        "choice (llguidance)",
        needs=LLGUIDANCE,
        structured_outputs={"choice": ["yes", "yes, sir", "no", "never"]},
    ),
    request("json (outlines_core)", needs=OUTLINES, structured_outputs={"json": SCHEMA}),
    request("regex (outlines_core)", needs=OUTLINES, structured_outputs={"regex": "(ab|cd){2,5}"}),
    request(
        "choice (outlines_core)",
        needs=OUTLINES,
        structured_outputs={"choice": ["left", "lefts", "right"]},
    ),
    request("thinking_token_budget", needs=THINKS, thinking_token_budget=4),
    # Engines
    engine("logits processor of a server", True, **processor("even", "Even")),
    engine("a reasoning parser", True, **THINKS),
    engine("processed logprobs", True, logprobs_mode="processed_logprobs"),
    engine("int8", True, quantization="int8"),
    engine("a sliding window", True, model="{mistral_window}"),
    engine("hybrid attention", True, model="{gemma3}"),
    engine("a Transformers model", True, model="{gpt_neox}"),
    Feature(name="adapters", needs=LORA, adapters=("one", None, "two", "one")),
    Feature(
        name="one adapter in memory",
        options={"max_loras": 1, "max_cpu_loras": 1},
        changes=False,
        needs=LORA,
    ),
    Feature(
        name="an adapter loaded, replaced and unloaded beside",
        acts=("adapters",),
        changes=False,
        needs=LORA,
    ),
    drafts("ngram", "ngram", prompt_lookup_min=1),
    drafts("suffix", "suffix"),
    drafts("draft model", "draft_model", "{llama}"),
    drafts("EAGLE", "eagle", "{eagle}"),
    drafts("Medusa", "medusa", "{medusa}"),
    engine("two steps in flight", loop_depth=2),
    engine("small steps", max_num_batched_tokens=9),
    engine("no chunked prefill", enable_chunked_prefill=False),
    engine("no prefix cache", enable_prefix_caching=False),
    engine("few pages", num_pages=9),
    engine("few slots", max_num_seqs=2),
    engine("fair queueing", scheduling_policy="fair"),
    acted("a hit of the prefix cache", "twice"),
    acted("late arrivals", "late"),
    acted("pause and resume", "pause"),
    acted("sleep and wake", "sleep"),
    acted("an abort beside", "abort"),
    acted("embeddings beside", "embed", pooling="mean"),
    Feature(name="a core of its own process", acts=("process",), changes=False),
)


@dataclass(frozen=True)
class Refusal:
    """Features that are refused together, and words of the error."""

    names: frozenset[str]
    words: str
    why: str


def refused(names: str, words: str, why: str) -> Refusal:
    """names: joined by " + "; a name that ends with "*" stands for all that begin so."""
    return Refusal(frozenset(names.split(" + ")), words, why)


REFUSALS: tuple[Refusal, ...] = (
    refused("greedy + n", "n is invalid", "all outputs would be equal"),
    refused("stop + detokenize=False", "stop is invalid", "there is no text to stop at"),
    refused(
        "small steps + no chunked prefill",
        "a step must be able to hold the longest prompt",
        "a prompt would have to fit into one step",
    ),
    refused(
        "int8 + a Transformers model",
        "would change nothing of this model",
        "Transformers' own code lets no kernel compute its linear maps",
    ),
    refused(
        "hybrid attention + few pages",
        "max_model_len exceeds the cache",
        "the pages of a request lie in several groups, and here one would not fit",
    ),
)


def named(name: str) -> Feature:
    """The feature of this name."""
    return next(one for one in FEATURES if one.name == name)


def fits(pattern: str, names: Iterable[str]) -> bool:
    """Whether one of the names is meant."""
    if pattern.endswith("*"):
        return any(name.startswith(pattern[:-1]) for name in names)
    return pattern in names


def refusal_of(features: Iterable[Feature]) -> Refusal | None:
    """Why these are refused together, if they are."""
    names = {one.name for one in features}
    return next(
        (one for one in REFUSALS if all(fits(pattern, names) for pattern in one.names)), None
    )


def merged(parts: Iterable[Fields]) -> dict[str, Value] | None:
    """All fields of all; None where two say different things of one.  Lists of plugins grow."""
    said: dict[str, Value] = {}
    for part in parts:
        for name, value in part.items():
            if name == "plugins":
                said[name] = {**said.get(name, {}), **value}
            elif name == "logits_processors":
                said[name] = tuple(dict.fromkeys((*said.get(name, ()), *value)))
            elif said.setdefault(name, value) != value:
                return None
    return said


def together(features: Sequence[Feature]) -> bool:
    """Whether they can be asked for at one time: no two say different things of one field."""
    return (
        merged(one.asks for one in features) is not None
        and merged(one.wanted for one in features) is not None
    )


def sets_of(size: int) -> list[tuple[Feature, ...]]:
    """All sets of so many features that can be asked for together."""
    return [some for some in combinations(FEATURES, size) if together(some)]
