"""What an operator asks of participants, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import UnsupportedError
from framework.plugins.blame import blaming, unfit
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.participant import SchedulerParticipant


class Operated:
    """participants: by name.  Asked between steps, from the core's thread."""

    def __init__(self, participants: Mapping[str, SchedulerParticipant]) -> None:
        self._participants = participants

    def control(self, name: str, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See SchedulerParticipant.control.  Raises UnsupportedError for a name that is not active,
        PluginError if the participant fails; no request is affected."""
        participant = self._participants.get(name) if isinstance(name, str) else None
        if participant is None:
            raise UnsupportedError(
                f"there is no participant {shown(name):.80}",
                expected=f"one of {', '.join(self._participants) or 'none'}",
                found=f"{shown(name):.80}",
            )
        with blaming(participant, f"doing {shown(op):.40}"):
            answer = participant.control(op, arguments)
        if not isinstance(answer, Mapping):
            raise unfit(participant, f"answered {op!r:.40} with", "a mapping", answer)
        return answer
