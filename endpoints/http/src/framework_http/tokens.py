"""`endpoint:tokenize`: text to token ids and back, as the engine does it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import fastapi
import msgspec
from pydantic import ConfigDict
from starlette.responses import Response

from framework.contracts.endpoint import Endpoint
from framework.errors import InputError
from framework_http.openai.fields import Items, Known, Tools
from framework_http.openai.models import check_model
from framework_http.openai.tools import check_functions
from framework_http.sse import JSON

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.contracts.tokenizer import Tokenizer

_AT_ONCE = 2**16
_OF_CONVERSATIONS = (
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
)


class TokenizeFields(Known):
    """A text, or a conversation as the model is shown it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "Hello"}]})

    model: str | None = None
    prompt: str | None = None
    messages: Items[dict[str, Any]] | None = None
    tools: Tools | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeFields(Known):
    """tokens: their ids."""

    model: str | None = None
    tokens: Items[int]


class Tokenize(Endpoint):
    """POST /tokenize and /detokenize."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter()

        @router.post("/tokenize")
        async def tokenize(fields: TokenizeFields) -> Response:
            check_model(service, fields.model)
            ids = await _ids(service, fields)
            answer: dict[str, Any] = {
                "count": len(ids),
                "max_model_len": service.max_model_len,
                "tokens": msgspec.Raw(await asyncio.to_thread(_written, ids)),
            }
            if fields.return_token_strs:
                texts = await service.with_tokenizer(
                    lambda tokenizer: _written([tokenizer.token_text(token) for token in ids])
                )
                answer["token_strs"] = msgspec.Raw(texts)
            return Response(JSON.encode(answer), media_type="application/json")

        @router.post("/detokenize")
        async def detokenize(fields: DetokenizeFields) -> dict[str, str]:
            check_model(service, fields.model)
            text = await service.with_tokenizer(lambda tokenizer: _text(tokenizer, fields.tokens))
            return {"prompt": text}

        return router


def _written(items: list[Any]) -> bytes:
    """A list as JSON, some of it at a time: a text may have millions of tokens, and others want
    their turns meanwhile."""
    starts = range(0, len(items), _AT_ONCE)
    pieces = (JSON.encode(items[start : start + _AT_ONCE])[1:-1] for start in starts)
    return b"[%b]" % b",".join(pieces)


def _text(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Raises InputError for what is no token."""
    size = tokenizer.vocab_size
    for token in tokens:
        if not 0 <= token < size:
            raise InputError(
                f"token id {token} is out of range",
                parameter="tokens",
                expected=f"ids in [0, {size})",
                found=token,
            )
    return tokenizer.decode(tokens, skip_special_tokens=False)


async def _ids(service: Service, fields: TokenizeFields) -> list[int]:
    if (fields.prompt is None) == (fields.messages is None):
        raise InputError(
            "prompt and messages exclude each other",
            parameter="prompt",
            expected="one of them",
            found="none" if fields.prompt is None else "both",
        )
    if fields.messages is not None:
        return await _of_conversation(service, fields)
    for name in _OF_CONVERSATIONS:
        if getattr(fields, name) is not None:
            raise _bad(name, "messages, which it is about", "a prompt")
    text, special = fields.prompt or "", fields.add_special_tokens is not False
    return await service.with_tokenizer(
        lambda tokenizer: tokenizer.encode(text, add_special_tokens=special)
    )


async def _of_conversation(service: Service, fields: TokenizeFields) -> list[int]:
    if fields.add_special_tokens:
        raise _bad("add_special_tokens", "false: the template writes them", True)
    check_functions(fields.tools or ())
    goes_on = bool(fields.continue_final_message)
    generation = fields.add_generation_prompt
    prompt = await service.render_chat(
        fields.messages or [],
        tools=fields.tools or None,
        add_generation_prompt=not goes_on if generation is None else generation,
        continue_final_message=goes_on,
        chat_template_kwargs=fields.chat_template_kwargs,
        limited=False,
    )
    ids: list[int] = prompt["prompt_token_ids"]
    return ids


def _bad(name: str, expected: str, found: object) -> InputError:
    return InputError(f"{name} is invalid", parameter=name, expected=expected, found=found)
