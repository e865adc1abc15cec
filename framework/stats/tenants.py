"""What each tenant used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from framework.contracts.stat_logger import Counter

MOST_TENANTS = 200
"""Names that get counters of their own; whoever comes later is counted as OTHERS, so that names
which clients make up cannot fill a monitoring system."""
OTHERS = "(others)"


@dataclass(slots=True)
class _Usage:
    requests: int = 0
    prompt: int = 0
    generated: int = 0


class TenantUsage:
    """Counters by name; requests without one are not counted.  Not for several threads."""

    def __init__(self) -> None:
        self._usage: dict[str, _Usage] = {}

    def add(self, tenant: str, prompt: int, generated: int) -> None:
        """A request ended.  prompt, generated: tokens."""
        if not tenant:
            return
        known = tenant in self._usage or len(self._usage) < MOST_TENANTS
        usage = self._usage.setdefault(tenant if known else OTHERS, _Usage())
        usage.requests += 1
        usage.prompt += prompt
        usage.generated += generated

    def read(self) -> Iterator[Counter]:
        """As they are now."""
        for name, help, attribute in (
            ("tenant_requests", "Requests of a tenant that ended.", "requests"),
            ("tenant_prompt_tokens", "Tokens of the prompts of a tenant.", "prompt"),
            ("tenant_generation_tokens", "Tokens generated for a tenant.", "generated"),
        ):
            for tenant, usage in self._usage.items():
                labels = {"tenant": tenant}
                value = getattr(usage, attribute)
                yield Counter(name=name, help=help, value=value, labels=labels)
