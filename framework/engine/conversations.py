"""A conversation as a prompt, for every way into the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from framework.errors import InputError

if TYPE_CHECKING:
    from framework.contracts.tokenizer import TextLimit, Tokenizer


def render_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    template: str | None,
    limit: TextLimit | None,
    **options: Any,
) -> dict[str, Any]:
    """Token ids and, to show, their text.

    template: in place of the model's, unless the options bring one.  limit: refuses, before it
    is tokenized, a text that cannot fit; None where any length is wanted.  options: as for
    `Tokenizer.render_chat`.  Raises InputError for a bad conversation, a template that fails,
    or a model without one.
    """
    if options.get("add_generation_prompt", True) and options.get("continue_final_message"):
        raise InputError(
            "add_generation_prompt and continue_final_message exclude each other",
            parameter="continue_final_message",
            expected="one of them",
            found="both",
            mend="pass add_generation_prompt=False",
        )
    if options.get("chat_template") is None:
        options["chat_template"] = template
    ids = tokenizer.render_chat(messages, limit=limit, **options)
    return {"prompt": tokenizer.decode(ids, skip_special_tokens=False), "prompt_token_ids": ids}
