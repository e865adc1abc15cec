"""What the runner can be told beside steps."""

from __future__ import annotations

CONTROL_OPS = frozenset(("health", "profile", "sleep", "wake"))

ADAPTERS = "adapters"
"""One more, where adapters are served."""
