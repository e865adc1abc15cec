"""Regular expressions of an adapter's configuration, which a stranger may have written.

PEFT matches them with `re`, which some expressions keep busy for years, while nothing else of the
process goes on.  So `re` says here whether one is valid, and `regex` (whose plain syntax means the
same) matches: it lets other threads run, and ends at a limit of time.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from framework.errors import ModelError, UnsupportedError
from framework.shown import shown

if TYPE_CHECKING:
    import regex

LONGEST = 20_000
SECONDS = 5.0
"""For all matching of one adapter together."""


class Patterns:
    """What the expressions of one adapter match.  where: for messages."""

    def __init__(self, where: str, seconds: float = SECONDS) -> None:
        self._where, self._left = where, seconds

    def check(self, pattern: str) -> None:
        """Raises ModelError for what is no expression of `re`."""
        if len(pattern) > LONGEST:
            raise ModelError(
                f"{self._where} has a regular expression that is too long",
                expected=f"at most {LONGEST} characters",
                found=str(len(pattern)),
                mend="write the names of modules out",
            )
        try:
            _compiled(pattern)
        except (ValueError, RecursionError, OverflowError) as error:
            raise ModelError(
                f"{self._where} has an invalid regular expression: {shown(pattern):.120}",
                expected="one of Python's re",
                found=error,
                mend="correct it, or write the names of modules out",
            ) from error

    def match(self, pattern: str, text: str, *, whole: bool = False) -> regex.Match[str] | None:
        """As `re.match` or `re.fullmatch`, of a pattern that was checked.  Raises UnsupportedError
        where that takes too long."""
        begun, compiled = time.monotonic(), _compiled(pattern)
        match = compiled.fullmatch if whole else compiled.match
        try:
            return match(text, timeout=max(self._left, 1e-3), concurrent=True)
        except TimeoutError as error:
            raise UnsupportedError(
                f"{self._where} has a regular expression that takes too long: "
                f"{shown(pattern):.120}",
                expected="one that is decided for all modules within seconds",
                found=f"no end at the module {shown(text):.120}",
                mend="write the names of modules out",
            ) from error
        finally:
            self._left -= time.monotonic() - begun


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> regex.Pattern[str]:
    import regex

    try:
        re.compile(pattern)
        return regex.compile(pattern)
    except (re.error, regex.error) as error:
        raise ValueError(str(error)) from error
