"""Names of element types as operators write them."""

from __future__ import annotations

from collections.abc import Mapping

DTYPE_ALIASES: Mapping[str, str] = {"float": "float32", "half": "float16"}
"""What else may be written for a type."""
