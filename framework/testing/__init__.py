"""Published fakes for authors of plugins and for tests that need no model.

`framework.testing.harness` has a whole engine core on the scripted runner.
"""

from framework.testing.scripted import ScriptedRunner
from framework.testing.scripts import by_fingerprint, expected_tokens, fingerprint, from_outputs

__all__ = ["ScriptedRunner", "by_fingerprint", "expected_tokens", "fingerprint", "from_outputs"]
