"""The process that runs chat templates of requests: it may be killed, the engine may not.

Runs as a script with nothing but Jinja: arguments are processor seconds per conversation,
bytes of address space, and folders to import from.  Each line of standard input is {"template",
"variables", "characters"} in JSON, each line of standard output {"text"}, {"error", "syntax"}, or
{"long"} for a text of more characters than were asked for.  A template that takes too long ends
the process by SIGPROF.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

KEPT = 8


def main(seconds: float, memory: int) -> None:
    """Answer until standard input ends."""
    # Ctrl-C is the parent's to handle; this process ends when its input does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit(memory)
    environment = make_environment()
    compiled: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = _answer(environment, compiled, asked)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def make_environment() -> Any:
    """As Transformers makes it: the same blocks, filters and functions."""
    import datetime as dt

    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %}: marks answers for training; here only its body matters."""

        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(
                ("name:endgeneration",), drop_needle=True
            )
            return body

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(form: str) -> str:
        return dt.datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _limit(memory: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, OSError, ValueError):
        return  # a system without such limits: the time is limited all the same


def _answer(environment: Any, compiled: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    from jinja2 import TemplateSyntaxError

    text = asked["template"]
    try:
        if text not in compiled:
            if len(compiled) >= KEPT:
                compiled.clear()
            compiled[text] = environment.from_string(text)
        pieces, length = [], 0
        for piece in compiled[text].generate(asked["variables"]):
            pieces.append(piece)
            length += len(piece)
            if length > asked["characters"]:
                return {"long": True}
        return {"text": "".join(pieces)}
    except MemoryError:
        return {"error": "it took too much memory", "syntax": True}
    except Exception as error:  # a template may raise anything
        syntax = isinstance(error, TemplateSyntaxError | RecursionError)
        return {"error": f"{str(error).strip():.300}" or type(error).__name__, "syntax": syntax}


if __name__ == "__main__":
    sys.path += sys.argv[3:]
    main(float(sys.argv[1]), int(sys.argv[2]))
