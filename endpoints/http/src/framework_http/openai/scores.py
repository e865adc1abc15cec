"""Log-probabilities as completions give them: in OpenAI's old shape, and those of a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from framework_http.openai.echo import Cursor, Echo, Unscored
from framework_http.openai.shapes import best, finite, own

if TYPE_CHECKING:
    from framework.engine.outputs import Logprob, LogprobsAt, RequestOutput
    from framework_http.openai.fields import Fields


class Scores:
    """Of one output, part by part: four lists over its tokens.  most: of the candidates of each,
    beside the token itself.

    text_offset is where the character begins that a token is, or is a part of, in all parts: some
    text is held back in a stream, and so what was sent of it says nothing.
    """

    def __init__(self, most: int, echo: Echo) -> None:
        self._most, self._hidden = most, echo.hidden
        self._cursor = Cursor(len(echo.text))

    def part(self, entries: Sequence[LogprobsAt], echo: Echo) -> dict[str, Any]:
        """The next tokens; behind those of `echo`, where that begins the part."""
        tokens: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets = list(echo.places)
        for entry in (*echo.entries, *entries):
            token, value, top = self._read(entry)
            tokens.append(token.decoded_token)
            values.append(value)
            tops.append(top)
        for entry in entries:
            offsets.append(self._cursor.place(self._written(entry)))
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _written(self, entry: LogprobsAt) -> bytes:
        """What of the text this token is."""
        return b"" if next(iter(entry)) in self._hidden else own(entry).bytes

    def _read(
        self, entry: LogprobsAt | Unscored
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
