"""Chat templates of requests, in a process with limits.

A template is a program.  The model's own is trusted like its weights; one that comes with a
request is not: nested loops, or a string that doubles, would take the engine's thread or its
memory, and Jinja's sandbox bounds neither.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from framework.contracts.tokenizer import TextLimit
from framework.errors import InputError, TooLongError

SECONDS = 5.0
CHARACTERS = 1 << 25
MEMORY = 1 << 30


class TemplateProcess:
    """Starts with the first conversation, ends with this object or with the parent.

    For one conversation, seconds: of a processor.  characters: of its text.  memory: bytes of
    the process.
    """

    def __init__(
        self, seconds: float = SECONDS, characters: int = CHARACTERS, memory: int = MEMORY
    ) -> None:
        self.seconds, self.characters, self.memory = seconds, characters, memory
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def render(
        self, template: str, variables: Mapping[str, Any], limit: TextLimit | None = None
    ) -> str:
        """The text.  InputError for a template that fails or passes a limit, and for
        variables that are no JSON.  limit: of the text, where it is below `characters`."""
        most = self.characters if limit is None else min(self.characters, limit.characters)
        asked = {"template": template, "variables": variables, "characters": most}
        try:
            line = json.dumps(asked).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                "a chat template of a request sees plain JSON values only",
                parameter="messages",
                found=str(error),
                mend="send text, numbers, lists and mappings",
            ) from None
        with self._lock:
            answer = self._ask(line + b"\n")
        if "text" in answer:
            return str(answer["text"])
        if answer.get("long"):
            raise TooLongError(
                f"the chat template wrote more than {most} characters",
                parameter="messages",
                expected="a conversation that fits the context",
                mend="shorten the conversation, or give another chat_template",
            )
        raise InputError(
            f"the chat template refused the conversation: {answer['error']}",
            parameter="chat_template" if answer["syntax"] else "messages",
            mend="check roles and their order, or give another chat_template",
        )

    def _ask(self, line: bytes) -> dict[str, Any]:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        self._child = None  # also if this is interrupted: half an answer may lie in the pipe
        with suppress(BrokenPipeError):
            child.stdin.write(line)
            child.stdin.flush()
        answered = child.stdout.readline()
        if answered.endswith(b"\n"):
            self._child = child
            answer: dict[str, Any] = json.loads(answered)
            return answer
        code = _end(child)
        late = code == -signal.SIGPROF
        why = f"it took more than {self.seconds:g} s" if late else f"its process ended ({code})"
        return {"error": why, "syntax": True}

    def _start(self) -> subprocess.Popen[bytes]:
        import jinja2
        import markupsafe

        folders = {str(Path(module.__file__).parents[1]) for module in (jinja2, markupsafe)}
        limits = [str(self.seconds), str(self.memory)]
        script = str(Path(__file__).with_name("template_child.py"))
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", script, *limits, *sorted(folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, child)
        return child


def _end(child: subprocess.Popen[bytes]) -> int:
    """Closes its input, which ends it; returns the exit code."""
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    try:
        return child.wait(1)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
