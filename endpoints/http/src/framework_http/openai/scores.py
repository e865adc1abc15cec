"""Log-probabilities as completions give them: in OpenAI's old shape, and those of a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framework_http.openai.shapes import best, finite, own

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.outputs import Logprob, LogprobsAt, RequestOutput
    from framework_http.openai.fields import Fields


@dataclass(frozen=True, slots=True)
class Unscored:
    """A token of a prompt that nothing stands before: it has no probability."""

    decoded_token: str
    bytes: bytes


Entry = dict[int, "Logprob"] | Unscored


async def of_prompt(service: Service, output: RequestOutput) -> list[Entry]:
    """What is known of each token of the prompt."""
    entries = output.prompt_logprobs or []
    ids = [id for id, entry in zip(output.prompt_token_ids, entries, strict=True) if entry is None]

    def read(tokenizer: Tokenizer) -> list[bytes]:
        return [tokenizer.token_bytes(token) for token in ids]

    texts = iter(await service.with_tokenizer(read) if ids else ())
    return [_unscored(next(texts)) if entry is None else entry for entry in entries]


def _unscored(data: bytes) -> Unscored:
    return Unscored(data.decode("utf-8", "replace"), data)


class Scores:
    """Of one output, part by part: four lists over its tokens.  most: of the candidates of each,
    beside the token itself.

    text_offset is where the character begins that a token is, or is a part of, in all parts: some
    text is held back in a stream, and so what was sent of it says nothing.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._characters = 0

    def part(self, entries: Iterable[Entry]) -> dict[str, Any]:
        """The next tokens."""
        tokens: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for entry in entries:
            token, value, top = self._read(entry)
            tokens.append(token.decoded_token)
            values.append(value)
            tops.append(top)
            offsets.append(self._place(token.bytes))
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _read(
        self, entry: Entry
    ) -> tuple[Logprob | Unscored, float | None, dict[str, float] | None]:
        """The token, its log-probability, the candidates in its place."""
        match entry:
            case Unscored():
                return entry, None, None
            case _:
                token = own(entry)
                candidates = [*best(entry, self._most), token]
                top = {one.decoded_token: finite(one.logprob) for one in candidates}
                return token, finite(token.logprob), top

    def _place(self, data: bytes) -> int:
        """Where these bytes begin, which are counted."""
        before = self._characters
        self._characters += sum(byte & 0xC0 != 0x80 for byte in data)
        goes_on = data[:1] != b"" and data[0] & 0xC0 == 0x80
        return max(0, before - 1) if goes_on else before


def said_of_prompt(output: RequestOutput, fields: Fields) -> dict[str, Any]:
    """What was asked for of the prompt, as vLLM calls it.  output: the first of its request."""
    found: dict[str, Any] = {}
    if fields.prompt_logprobs is not None:
        found["prompt_logprobs"] = _plain(output.prompt_logprobs)
    if fields.return_token_ids:
        found["prompt_token_ids"] = output.prompt_token_ids
    return found


def _plain(entries: Iterable[LogprobsAt | None] | None) -> list[Any]:
    """id -> what is known of it, for each token; null for the first."""
    return [
        None
        if entry is None
        else {
            str(token): {
                "logprob": finite(one.logprob),
                "rank": one.rank,
                "decoded_token": one.decoded_token,
            }
            for token, one in entry.items()
        }
        for entry in entries or ()
    ]
