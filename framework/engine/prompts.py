"""The forms in which a user may write a prompt, and what is wrong with the others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from framework.contracts.step import F32
from framework.engine.prompt_embeds import read_embeds
from framework.errors import InputError, UnsupportedError
from framework.plugins.near import did_you_mean
from framework.shown import is_whole, shown

P = TypeVar("P")
T = TypeVar("T")
Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or a mapping with `prompt`, `prompt_token_ids` or `prompt_embeds`, and
`cache_salt` and `add_special_tokens` (of a text; true where it is not given).  Beside ids or
embeddings a text is only shown: they are what the model sees."""

_KNOWN = ("prompt", "prompt_token_ids", "prompt_embeds", "cache_salt", "add_special_tokens")
_UNSUPPORTED = {
    "multi_modal_data": "images, sound and video need a media processor, and none is installed",
    "mm_processor_kwargs": "images, sound and video need a media processor, and none is installed",
}
_MAPPING = "a mapping with 'prompt', 'prompt_token_ids' or 'prompt_embeds'"
_FORMS = f"a string, a list of token ids, or {_MAPPING}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPrompt:
    """Of text and ids at least one is given; ids win, the text is then only shown.
    special: the text gets the tokens that frame a prompt, as the tokenizer knows them.
    embeds: float32 [tokens, hidden], what the model sees in place of embeddings of its own; the
    ids are 0 then, one for each."""

    text: str | None = None
    ids: list[int] | None = None
    embeds: F32 | None = None
    salt: str | None = None
    special: bool = True


def split_prompts(prompts: object) -> list[Any]:
    """One prompt or several, as a list of prompts, not yet looked into."""
    if isinstance(prompts, str | bytes | Mapping):
        return [prompts]
    items = _listed(prompts)
    if items is None:
        raise InputError(
            "prompts are not understood",
            parameter="prompts",
            expected=f"{_FORMS}; or a list of such prompts",
            found=_kind(prompts),
        )
    first = items[0] if items else ""
    several = isinstance(first, str | bytes | Mapping) or _listed(first) is not None
    return items if several else [prompts]


def one_prompt(prompts: object) -> Any:
    """The only prompt; InputError for none or several."""
    items = split_prompts(prompts)
    if len(items) != 1:
        raise InputError(
            "one prompt was expected", parameter="prompt", expected="one", found=len(items)
        )
    return items[0]


def of_each(prompts: Sequence[P], make: Callable[[P], T]) -> list[T]:
    """What `make` gives for each; an InputError names which of several prompts it was."""
    if len(prompts) == 1:
        return [make(prompts[0])]
    found = []
    for number, prompt in enumerate(prompts):
        try:
            found.append(make(prompt))
        except InputError as error:
            raise error.within(f"prompt {number}") from None
    return found


def parse_prompt(prompt: object) -> ParsedPrompt:
    """Look into one prompt; the ids are integers >= 0, no more is known of them."""
    if isinstance(prompt, str):
        return ParsedPrompt(text=_text(prompt))
    if isinstance(prompt, Mapping):
        return _mapping(prompt)
    return ParsedPrompt(ids=token_ids(prompt, "prompt"))


def token_ids(value: object, parameter: str) -> list[int]:
    """A list of token ids from any sequence or array of integers."""
    items = _listed(value)
    if items is None:
        raise _bad(parameter, _FORMS, value)
    ids = []
    for position, item in enumerate(items):
        if type(item) is not int:
            item = _integer(item, f"{parameter}[{position}]")
        if item < 0:
            raise _bad(f"{parameter}[{position}]", "a token id >= 0", item)
        ids.append(item)
    return ids


def _mapping(prompt: Mapping[Any, Any]) -> ParsedPrompt:
    for key, value in prompt.items():
        if key in _UNSUPPORTED and value is not None:
            raise UnsupportedError(
                f"prompt[{key!r}] is not supported: {_UNSUPPORTED[key]}",
                expected="'prompt', 'prompt_token_ids' or 'prompt_embeds'",
                found=key,
            )
        if key not in _KNOWN and key not in _UNSUPPORTED:
            raise InputError(
                f"a prompt has no {shown(key)}{_near(key)}",
                parameter="prompt",
                expected=f"some of {', '.join(_KNOWN)}",
                found=shown(key),
            )
    text, ids, vectors, salt, special = (prompt.get(key) for key in _KNOWN)
    if text is None and ids is None and vectors is None:
        raise InputError(
            "a prompt says nothing to the model",
            parameter="prompt",
            expected=_MAPPING,
            found=f"a mapping with {shown(sorted(prompt))}" if prompt else "an empty mapping",
        )
    if ids is not None and vectors is not None:
        raise _bad("prompt", "either 'prompt_token_ids' or 'prompt_embeds'", "both")
    if text is not None and not isinstance(text, str):
        raise _bad("prompt['prompt']", "a string", text)
    if salt is not None and (not isinstance(salt, str) or not salt or not is_whole(salt)):
        raise _bad("cache_salt", "a string that is not empty, without lone surrogates", salt)
    if special is not None and not isinstance(special, bool):
        raise _bad("add_special_tokens", "True or False", special)
    embeds = None if vectors is None else read_embeds(vectors)
    if embeds is not None:
        ids = [0] * len(embeds)
    return ParsedPrompt(
        text=None if text is None else _text(text),
        ids=None if ids is None else token_ids(ids, "prompt_token_ids"),
        embeds=embeds,
        salt=salt,
        special=special is not False,
    )


def _near(key: object) -> str:
    return did_you_mean(key, _KNOWN) if isinstance(key, str) else ""


def _text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "the prompt is not valid Unicode",
            parameter="prompt",
            expected="text without lone surrogates",
            found=f"U+{ord(text[error.start]):04X} at character {error.start}",
        ) from None
    return text


def _listed(value: object) -> list[Any] | None:
    """A list of a list, a tuple, a range or an array; None for anything else."""
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple | range) else None


def _integer(item: object, parameter: str) -> int:
    if not isinstance(item, bool):
        try:
            return operator.index(item)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise _bad(parameter, "a token id, an integer >= 0", item)


def _kind(value: object) -> str:
    return f"{type(value).__name__} {shown(value):.80}"


def _bad(parameter: str, expected: str, value: object) -> InputError:
    return InputError(
        f"{parameter} is invalid", parameter=parameter, expected=expected, found=_kind(value)
    )
