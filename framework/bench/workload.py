"""The one workload that engines are compared on: random prompts of one length, greedy, the end of
sequence ignored."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from framework.errors import ConfigError

IDS = range(100, 49_000)
"""Where ids are drawn from, as far as the vocabulary goes; below are special ones, mostly."""
_CASE = re.compile(r"(\d{1,6})x(\d{1,6})\+(\d{1,6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """requests: that come at once.  prompt, output: tokens of each.  shared: tokens at the start
    of the prompts that all have in common; one token at least is each prompt's own.  warm: these
    were computed by an earlier request, which is not timed."""

    requests: int
    prompt: int
    output: int
    shared: int = 0
    warm: bool = False

    @classmethod
    def parse(cls, text: str, *, shared: int = 0, warm: bool = False) -> Case:
        """Read REQUESTSxPROMPT+OUTPUT, such as "16x128+64".  Raises ConfigError."""
        found = _CASE.fullmatch(text.strip())
        numbers = [int(number) for number in found.groups()] if found else [0, 0, 0]
        if min(numbers) < 1:
            raise ConfigError(
                "the case is invalid",
                expected="REQUESTSxPROMPT+OUTPUT, such as 16x128+64, each at least 1",
                found=repr(text),
            )
        requests, prompt, output = numbers
        if not 0 <= shared < prompt:
            raise ConfigError(
                "the shared prefix is too long",
                expected=f"less than the {prompt} tokens of a prompt",
                found=shared,
            )
        return cls(requests=requests, prompt=prompt, output=output, shared=shared, warm=warm)

    def __str__(self) -> str:
        text = f"{self.requests}x{self.prompt}+{self.output}"
        if self.shared:
            text += f" sharing {self.shared}{' (warm)' if self.warm else ''}"
        return text

    def prompts(self, vocabulary: int, seed: int = 0) -> list[list[int]]:
        """The same prompts at every call; without a shared part those that the peers get."""
        chance = random.Random(seed)
        ids = IDS if vocabulary >= IDS.stop else range(vocabulary // 2, vocabulary)
        common = [chance.choice(ids) for _ in range(self.shared)]
        own = range(self.prompt - self.shared)
        return [[*common, *(chance.choice(ids) for _ in own)] for _ in range(self.requests)]
