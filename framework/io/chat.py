"""`io_processor:chat`: a conversation to be answered; for LLM, command line, HTTP alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading, known_keys
from framework.errors import InputError
from framework.io.messages import normalise_messages, normalise_objects
from framework.io.text import last_tokens
from framework.shown import shown

_KEYS: Mapping[str, object] = {
    "messages": None,
    "tools": None,
    "documents": None,
    "chat_template": None,
    "chat_template_kwargs": None,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "cache_salt": None,
}


class ChatProcessor(IOProcessor):
    """A request is a mapping with `messages` and, if wanted, the other keys; the answer is the
    RequestOutput of the conversation's prompt.

    messages: objects with role, content (text, a list of parts, or None), tool_calls.  tools,
    documents: lists of objects that the template sees.  chat_template: in place of the engine's.
    chat_template_kwargs: further variables of the template.  add_generation_prompt,
    continue_final_message: as for `LLM.chat`.  cache_salt: as of a prompt.
    """

    examples: ClassVar[Sequence[Any]] = (
        {"messages": [{"role": "user", "content": "hi"}]},
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "H"},
            ],
            "add_generation_prompt": False,
            "continue_final_message": True,
        },
    )

    def read(self, request: Any, place: Place) -> Reading:
        given = known_keys(request, _KEYS)
        for name in ("add_generation_prompt", "continue_final_message"):
            if not isinstance(given[name], bool):
                raise _bad(name, "True or False", given[name])
        if given["add_generation_prompt"] and given["continue_final_message"]:
            raise InputError(
                "add_generation_prompt and continue_final_message exclude each other",
                parameter="continue_final_message",
                expected="one of them",
                found="both",
                mend="pass add_generation_prompt=False",
            )
        template = given["chat_template"]
        if template is None:
            template = place.chat_template
        elif not isinstance(template, str):
            raise _bad("chat_template", "a Jinja template", template)
        salt = given["cache_salt"]
        if salt is not None and (not isinstance(salt, str) or not salt):
            raise _bad("cache_salt", "a string that is not empty", salt)
        ids = place.tokenizer.render_chat(
            normalise_messages(given["messages"], template or place.tokenizer.chat_template or ""),
            tools=normalise_objects(given["tools"], "tools"),
            chat_template=template,
            chat_template_kwargs=_variables(given),
            add_generation_prompt=given["add_generation_prompt"],
            continue_final_message=given["continue_final_message"],
            limit=place.limit,
        )
        text = place.tokenizer.decode(ids, skip_special_tokens=False)
        ids = last_tokens(ids, place)
        return Reading(prompts=(EnginePrompt(ids=ids, text=text, salt=salt),))


def _variables(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the template sees beside messages and tools."""
    kwargs = given["chat_template_kwargs"]
    if kwargs is not None and not (
        isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)
    ):
        raise _bad("chat_template_kwargs", "an object: names and values", kwargs)
    documents = normalise_objects(given["documents"], "documents")
    if documents is None:
        return None if kwargs is None else dict(kwargs)
    return {**(kwargs or {}), "documents": documents}


def _bad(name: str, expected: str, found: object) -> InputError:
    return InputError(
        f"{name} is invalid",
        parameter=name,
        expected=expected,
        found=f"{type(found).__name__} {shown(found):.80}",
    )
