"""A conversation through a chat template: the model's by Transformers' own machinery, that of
a request in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.contracts.tokenizer import TextLimit
from framework.errors import InputError, ModelError
from framework.shown import shown
from framework_text.template_process import TemplateProcess

# Arguments of apply_chat_template that are this module's own, not variables of a template.
_OWN = frozenset(
    {
        "conversation",
        "messages",
        "tools",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
        "processor_kwargs",
    }
)


# Marks the end of a message to be continued.  A template that trims takes the space off.
_TAG = "CONTINUE-FROM-HERE-5f1c9a "


def render(
    library: Any,
    foreign: TemplateProcess,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None,
    chat_template: str | None,
    chat_template_kwargs: Mapping[str, Any] | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    limit: TextLimit | None = None,
) -> str:
    """The prompt as text.  foreign: runs `chat_template`, which may not write more than `limit`
    allows.  Raises InputError, whatever the template does."""
    variables = _variables(chat_template_kwargs)
    template = _template(library, chat_template, tools)
    conversation = [dict(message) for message in messages]
    functions = None if tools is None else [dict(tool) for tool in tools]
    if chat_template is not None:
        variables = {
            **library.special_tokens_map,
            "documents": None,
            **variables,
            "tools": functions,
            "add_generation_prompt": add_generation_prompt,
        }
        if continue_final_message:
            return _continued(foreign, template, conversation, variables, limit)
        return foreign.render(template, {**variables, "messages": conversation}, limit)
    try:
        text = library.apply_chat_template(
            conversation,
            tools=functions,
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tokenize=False,
            **variables,
        )
    except Exception as error:
        # A template is a program of the model's author: it may raise anything.
        raise InputError(
            f"the chat template refused the conversation: {_words(error)}",
            parameter=_culprit(error),
            mend="check roles and their order, or give another chat_template",
        ) from error
    if not isinstance(text, str):
        raise InputError("the conversation is not one conversation", parameter="messages")
    return text


def _continued(
    foreign: TemplateProcess,
    template: str,
    conversation: list[dict[str, Any]],
    variables: Mapping[str, Any],
    limit: TextLimit | None,
) -> str:
    """The prompt up to the end of the last message."""
    last = {**conversation[-1], "content": conversation[-1]["content"] + _TAG}
    variables = {**variables, "messages": [*conversation[:-1], last]}
    text = foreign.render(template, variables, limit)
    head, found, tail = text.rpartition(_TAG.strip())
    if not found:
        raise InputError(
            "the chat template does not write the final message, which was to be continued",
            parameter="continue_final_message",
            mend="set continue_final_message to False, or give another chat_template",
        )
    return head if tail.startswith(" ") else head.rstrip()


def _variables(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    if kwargs is None:
        return {}
    own = sorted(_OWN & set(kwargs))
    if own:
        raise InputError(
            f"chat_template_kwargs may not set {', '.join(own)}",
            parameter="chat_template_kwargs",
            mend="use the parameter of that name",
        )
    return dict(kwargs)


def _template(
    library: Any, chat_template: str | None, tools: Sequence[Mapping[str, Any]] | None
) -> str:
    """The template to use: the caller's, or the model's (which may have one for tools)."""
    if chat_template is not None:
        return chat_template
    own: Any = library.chat_template
    if isinstance(own, dict):
        own = own.get("tool_use") if tools and "tool_use" in own else own.get("default")
    if own and not isinstance(own, str):
        raise ModelError(
            "the model's chat template is not a text",
            expected="a Jinja template, as `chat_template` in tokenizer_config.json",
            found=shown(own),
            mend="correct the model's files, or give another chat_template",
        )
    if not own:
        raise InputError(
            "this model has no chat template",
            parameter="messages",
            mend="give a Jinja template as chat_template, or send a prompt instead of messages",
        )
    return own


def _culprit(error: Exception) -> str:
    from jinja2 import TemplateSyntaxError

    return "chat_template" if isinstance(error, TemplateSyntaxError) else "messages"


def _words(error: Exception) -> str:
    return f"{str(error).strip():.300}" or type(error).__name__
