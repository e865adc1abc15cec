"""`io_processor:text`: a prompt to be continued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading
from framework.engine.prompts import parse_prompt


class TextProcessor(IOProcessor):
    """A request is a `framework.Prompt`; the answer is its RequestOutput."""

    examples: ClassVar[Sequence[Any]] = ("hi", [1, 2], {"prompt": "hi", "cache_salt": "a"})

    def read(self, request: Any, place: Place) -> Reading:
        parsed = parse_prompt(request)
        ids = parsed.ids
        if ids is None:
            text = parsed.text or ""
            if place.limit is not None:
                place.limit.check(text)
            ids = place.tokenizer.encode(text, add_special_tokens=parsed.special)
        ids = last_tokens(ids, place)
        embeds = None if parsed.embeds is None else parsed.embeds[-len(ids) :]
        prompt = EnginePrompt(ids=ids, text=parsed.text, salt=parsed.salt, embeds=embeds)
        return Reading(prompts=(prompt,))


def last_tokens(ids: list[int], place: Place) -> list[int]:
    """The end of a prompt, as `truncate_prompt_tokens` says: what is continued is at its end."""
    keep = place.params.truncate_prompt_tokens
    if keep is None:
        return ids
    if keep < 0:
        output = getattr(place.params, "max_tokens", 0)  # of a prompt that is pooled, none
        keep = max(1, place.max_tokens - (1 if output is None else output))
    return ids[-keep:]
