"""Published fakes for authors of plugins and for tests that need no model."""

from framework.testing.scripted import ScriptedRunner
from framework.testing.scripts import by_fingerprint, fingerprint, from_outputs

__all__ = ["ScriptedRunner", "by_fingerprint", "fingerprint", "from_outputs"]
