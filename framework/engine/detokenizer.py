"""Token ids to text, one token at a time, byte for byte.

    bytes of tokens | decided characters            | incomplete character |
    characters      | given out | may begin a stop  |

Bytes that cannot be UTF-8 become U+FFFD as soon as that is decided, an incomplete
character only at the end.  The concatenated pieces equal the text of the whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING

from framework.engine.stops import StopMatcher

if TYPE_CHECKING:
    from framework.contracts.tokenizer import Tokenizer


class Detokenizer:
    """The text of one output.

    stops: strings that end the text, see StopMatcher for which one wins.  A stop that
    completes within the first `min_tokens` tokens passes as text.  include_stop: the text
    keeps the stop string.  skip_special: special ids have no text.  hidden_ids: further ids
    that have none with skip_special (end-of-sequence ids that the tokenizer does not call
    special).  at_start: the text begins here instead of continuing a prompt, so that a
    tokenizer which strips a leading space does so.

    Attributes: num_tokens, tokens taken, those after a stop string left out.  stop: the stop
    string that ended the text, or None.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        min_tokens: int = 0,
        include_stop: bool = False,
        skip_special: bool = True,
        hidden_ids: frozenset[int] = frozenset(),
        at_start: bool = False,
    ) -> None:
        self._bytes_of = tokenizer.token_bytes
        self._hidden = tokenizer.special_ids | hidden_ids if skip_special else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(stops) if stops else None
        self._min_tokens = min_tokens
        self._include_stop = include_stop
        self._strip = at_start and tokenizer.strips_leading_space
        self._withheld = ""
        self._ready: list[str] = []
        self.num_tokens = 0
        self.stop: str | None = None

    def push(self, ids: Sequence[int]) -> bool:
        """Take tokens; True when a stop string ended the text.

        Tokens after the one that completes the stop string are not taken.
        """
        if self._matcher is None:
            hidden, bytes_of = self._hidden, self._bytes_of
            shown = b"".join([bytes_of(token) for token in ids if token not in hidden])
            self.num_tokens += len(ids)
            self._characters(self._decoder.decode(shown))
            return False
        for token in ids:
            if self.stop is not None:
                break
            self.num_tokens += 1
            if token not in self._hidden:
                self._characters(self._decoder.decode(self._bytes_of(token)))
        return self.stop is not None

    def finish(self) -> bool:
        """The output ended: decide what was held back.  True as in `push`."""
        if self.stop is None:
            self._characters(self._decoder.decode(b"", True))
        if self.stop is None:
            self._ready.append(self._withheld)
        self._withheld = ""
        return self.stop is not None

    def take(self) -> str:
        """Text that became certain since the call before."""
        text = "".join(self._ready)
        self._ready.clear()
        return text

    def _characters(self, text: str) -> None:
        if not text:
            return
        if self._strip:
            self._strip = False
            text = text.removeprefix(" ")
        if self._matcher is None:
            self._ready.append(text)
            return
        match = self._matcher.feed(text, act=self.num_tokens > self._min_tokens)
        if match is None:
            text = self._withheld + text
            certain = len(text) - self._matcher.withheld
            self._ready.append(text[:certain])
            self._withheld = text[certain:]
            return
        self.stop = match.stop
        end = len(self._withheld) + match.end - (0 if self._include_stop else len(match.stop))
        self._ready.append((self._withheld + text)[:end])
        self._withheld = ""


def continues(tokenizer: Tokenizer, prompt: Sequence[int], *, skip_special: bool) -> bool:
    """Whether the prompt has text that an output continues."""
    hidden = tokenizer.special_ids if skip_special else frozenset[int]()
    return any(
        int(token) not in hidden and tokenizer.token_bytes(int(token)) for token in reversed(prompt)
    )
