"""`io_processor:text`: a prompt to be continued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading
from framework.engine.prompts import parse_prompt

if TYPE_CHECKING:
    from framework.contracts.io_processor import Params


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
        ids = last_tokens(ids, place.params)
        return Reading(prompts=(EnginePrompt(ids=ids, text=parsed.text, salt=parsed.salt),))


def last_tokens(ids: list[int], params: Params) -> list[int]:
    """The end of a prompt, as `truncate_prompt_tokens` says: what is continued is at its end."""
    keep = params.truncate_prompt_tokens
    return ids if keep is None or keep < 0 else ids[-keep:]
