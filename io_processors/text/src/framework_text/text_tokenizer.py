"""The engine's tokenizer on top of one of the tokenizers library.

Transformers, whose import takes as long as that of torch, comes only with the first conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framework.contracts.model_source import ModelFiles
from framework.contracts.tokenizer import TextLimit
from framework.errors import InputError
from framework_text.bytes_of_tokens import TokenDecoder
from framework_text.chat import render
from framework_text.template_process import TemplateProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a tokenizer is made of.

    backend: a `tokenizers.Tokenizer`.  bos_id, special_ids: as Transformers would name them.
    chat_template: its text, several by name, or None.  library: makes the PreTrainedTokenizerFast
    on top of `backend`, which that must leave as it is.
    """

    backend: Any
    bos_id: int | None
    special_ids: Iterable[int]
    chat_template: Any
    library: Callable[[], Any]

    @classmethod
    def of(cls, library: Any) -> Source:
        """Of a PreTrainedTokenizerFast that is there already."""
        return cls(
            backend=library.backend_tokenizer,
            bos_id=library.bos_token_id,
            special_ids=library.all_special_ids,
            chat_template=library.chat_template,
            library=lambda: library,
        )


class TextTokenizer:
    """Implements `framework.contracts.tokenizer.Tokenizer`.

    decoder: the bytes of a token.  texts: how ids are written whose text the library's table has
    not (of two ids that are written alike it holds one).  count: of ids, where there may be more
    than in that table.
    """

    def __init__(
        self,
        source: Source,
        decoder: TokenDecoder,
        *,
        eos_ids: Iterable[int],
        texts: Mapping[int, str] | None = None,
        count: int = 0,
    ) -> None:
        self._make_library = source.library
        self._library: Any = None
        self._foreign = TemplateProcess()
        self._backend = source.backend
        # tokenizer.json may ask for truncation and padding; neither belongs to a prompt.
        self._backend.no_truncation()
        self._backend.no_padding()
        self._decoder = decoder
        self._texts = texts or {}
        added = self._backend.get_added_tokens_decoder()
        self._added = {index: token.content for index, token in added.items()}
        self._bytes: dict[int, bytes] = {}
        highest = max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self.vocab_size: int = max(highest + 1, count)
        self.special_ids: frozenset[int] = frozenset(
            index for index, token in added.items() if token.special
        ) | frozenset(source.special_ids)
        self.eos_ids: tuple[int, ...] = tuple(
            dict.fromkeys(index for index in eos_ids if 0 <= index < self.vocab_size)
        )
        self.bos_id: int | None = source.bos_id
        self.strips_leading_space: bool = decoder.strips_leading_space
        template = source.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        self.chat_template: str | None = template

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids.  InputError for what is not text, lone surrogates included."""
        return self._encode(text, add_special_tokens, "prompt")

    def _encode(self, text: str, add_special_tokens: bool, parameter: str) -> list[int]:
        if not isinstance(text, str):
            raise InputError(
                "only text can be tokenized",
                parameter=parameter,
                expected="str",
                found=type(text).__name__,
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text is not valid Unicode: a lone surrogate at character {error.start}",
                parameter=parameter,
                found=repr(text[error.start]),
                mend="decode the text with errors='replace'",
            ) from None
        return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text; bytes that are not UTF-8 become U+FFFD, unknown ids nothing."""
        skipped = self.special_ids if skip_special_tokens else frozenset()
        raw = b"".join(self.token_bytes(index) for index in ids if index not in skipped)
        if self.strips_leading_space and raw.startswith(b" "):
            raw = raw[1:]
        return raw.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        found = self._bytes.get(token_id)
        if found is None:
            found = self._compute_bytes(token_id)
            if 0 <= token_id < self.vocab_size:
                self._bytes[token_id] = found
        return found

    def _compute_bytes(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._decoder.added_to_bytes(self._added[token_id])
        return self._decoder.to_bytes(text) if (text := self.token_text(token_id)) else b""

    def token_text(self, token_id: int) -> str:
        if not 0 <= token_id < self.vocab_size:
            return ""
        text = self._texts.get(token_id)
        return (self._backend.id_to_token(token_id) or "") if text is None else text

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        limit: TextLimit | None = None,
    ) -> list[int]:
        text = render(
            self.unwrap(),
            self._foreign,
            messages,
            tools=tools,
            chat_template=chat_template,
            chat_template_kwargs=chat_template_kwargs,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            limit=limit,
        )
        if limit is not None:
            limit.check(text)
        # The template writes BOS itself where the model wants one.
        return self._encode(text, False, "messages")

    def unwrap(self) -> Any:
        """The PreTrainedTokenizerFast; made when it is first asked for."""
        if self._library is None:
            self._library = self._make_library()
        return self._library


def configured_eos_ids(model: ModelFiles) -> list[int]:
    """What generation_config and config name as the end, an id or a list of ids each."""
    ids: list[int] = []
    for config in (model.generation_config, model.config):
        value = config.get("eos_token_id")
        values = value if isinstance(value, list | tuple) else [value]
        ids += [item for item in values if isinstance(item, int) and not isinstance(item, bool)]
    return ids
