"""The tokens before each row, read from the token table whenever somebody asks.

Nothing is counted ahead of time and nothing is kept: after a preemption, a rejected draft or
a step that was planned while another was in flight the history is what the table says.

    row      |0 ....... num_prompt|....... known in the table |.. drafts ..| position
             | prompt             | output                                 | new token
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32
from framework.errors import IntegrityError

I64 = npt.NDArray[np.int64]


class TokenTable(Protocol):
    """Tokens by slot, owned by the runner.

    tokens: int32 [max_slots, max_len].  num_prompt, known: [max_slots], integers: length of
    the prompt, and how many of the row's tokens are valid.  first: where its ids begin; before
    it stands what has none.
    """

    @property
    def tokens(self) -> I32: ...
    @property
    def num_prompt(self) -> npt.NDArray[np.integer]: ...
    @property
    def known(self) -> npt.NDArray[np.integer]: ...
    @property
    def first(self) -> npt.NDArray[np.integer]: ...


class History:
    """Views of what lies before the rows of one step.

    positions: int64 [N], the index the new token will have.  extra: per row the draft ids
    directly before that position, which are not in the table yet; None: no row has any.
    """

    def __init__(
        self, table: TokenTable, slots: I32, positions: I64, extra: Sequence[I32] | None
    ) -> None:
        self._table = table
        self._slots = slots
        self._positions = positions
        self._extra = extra
        self.num_outputs: I64 = positions - table.num_prompt[slots]

    def whole(self, row: int) -> I32:
        """Prompt and output before `row`, all that have ids: int32, read-only."""
        return self._from(row, int(self._table.first[self._slots[row]]))

    def outputs(self, row: int) -> I32:
        """Output before `row`, int32, read-only."""
        return self._from(row, int(self._table.num_prompt[self._slots[row]]))

    def _from(self, row: int, start: int) -> I32:
        slot, end = int(self._slots[row]), int(self._positions[row])
        drafts = None if self._extra is None else self._extra[row]
        if drafts is not None:
            end -= len(drafts)
        if int(self._table.known[slot]) < end:
            raise IntegrityError(
                "the token table does not hold what lies before a sampled position",
                expected=f"{end} known tokens in slot {slot}",
                found=int(self._table.known[slot]),
            )
        tokens = self._table.tokens[slot, start:end]
        if drafts is not None and len(drafts):
            tokens = np.concatenate((tokens, drafts.astype(np.int32, copy=False)))
        tokens.flags.writeable = False
        return tokens
