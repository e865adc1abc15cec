"""What is wrong with the plugins of this environment, and how to mend each."""

from __future__ import annotations

from framework.plugins.doctor.examine import examine
from framework.plugins.doctor.findings import Finding

__all__ = ["Finding", "examine"]
