"""`framework chat`: a conversation in the terminal."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from framework.cli import options
from framework.cli.rate import Rate
from framework.errors import EngineDeadError, FrameworkError
from framework_commands.conversation import Conversation
from framework_commands.flags import ApiKey, Url, open_speaker

if TYPE_CHECKING:
    from framework_commands.speaking import Piece, Speaker

log = logging.getLogger("framework")

# Where the model recommends nothing: at temperature 1 a small one loses its thread.
USUAL = {"temperature": 0.7, "top_p": 0.95}
HELP = "/reset starts anew, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


def chat(
    context: typer.Context,
    model: options.Model = None,
    url: Url = None,
    api_key: ApiKey = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens of an answer; default: the context's rest.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="0 is greedy; default: the model's recommendation, or 0.7."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Nucleus: keep this much probability; default as well, or 0.95."),
    ] = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    dtype: options.Dtype = None,
    quantization: options.Quantization = None,
    max_model_len: options.MaxModelLen = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Talk to a model, here or behind a URL.  Lines from a pipe are questions, one each."""
    engine = {
        "model": model,
        "dtype": dtype,
        "quantization": quantization,
        "max_model_len": max_model_len,
    }
    sampling = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": stop or None,
    }
    usual = {"max_tokens": None, **USUAL}
    with open_speaker(
        context, url, api_key, engine, sampling, usual, config=config, settings=settings
    ) as speaker:
        chat = Chat(speaker, Conversation(system))
        chat.run()
    if chat.failed and not sys.stdin.isatty():
        raise typer.Exit(1)


class Chat:
    """Reads questions from stdin and streams the answers to stdout; notices go to stderr."""

    def __init__(self, speaker: Speaker, conversation: Conversation) -> None:
        self._speaker = speaker
        self._conversation = conversation
        self._terminal = sys.stdin.isatty()
        self.failed = 0

    def run(self) -> None:
        """Until /exit or the end of the input.  A question that fails is told and counted
        in `failed`, and the conversation goes on."""
        if self._terminal:
            with suppress(ImportError):
                import readline  # noqa: F401  (input() then edits lines and has a history)
            _notice(HELP)
        while (line := self._read()) is not None:
            text = line.strip()
            if text == "/exit":
                return
            if text == "/reset":
                self._conversation.reset()
                _notice("the conversation starts anew")
            elif text.startswith("/"):
                _notice(f"unknown command {text.split()[0]}: {HELP}")
            elif text:
                self._exchange(text)

    def _read(self) -> str | None:
        while True:
            try:
                line = input("> " if self._terminal else "")
                line.encode()  # a terminal hands on what is not UTF-8 as lone surrogates
                return line
            except EOFError:
                if self._terminal:
                    _notice("")
                return None
            except UnicodeError:
                self.failed += 1
                _notice("that line is not valid text; it is left out")
            except KeyboardInterrupt:
                if not self._terminal:
                    raise
                _notice("\n" + HELP)

    def _exchange(self, question: str) -> None:
        self._conversation.ask(question)
        try:
            answer = self._answer()
        except EngineDeadError:
            raise
        except FrameworkError as error:
            self._conversation.take_back()
            self.failed += 1
            _notice(f"error: {error}")
            return
        self._conversation.answer(answer)

    def _answer(self) -> str:
        """Stream one answer; Ctrl-C keeps what has come so far."""
        texts: list[str] = []
        rate = Rate()
        try:
            pieces, dropped = self._speaker.answer(self._conversation)
            if dropped:
                _notice(f"the context is full: {dropped} oldest exchange(s) were forgotten")
            try:
                for piece in pieces:
                    texts.append(piece.text)
                    rate.add(piece.tokens)
                    show(piece)
            finally:
                pieces.close()
        except KeyboardInterrupt:
            _notice("\nstopped")
        log.info("[%s]", rate)
        return "".join(texts)


def show(piece: Piece) -> None:
    """Print a piece of an answer, and what there is to say of its end."""
    print(piece.text, end="", flush=True)
    if piece.ending is not None:
        print(flush=True)
    if piece.ending == "length":
        _notice("the answer was cut: max_tokens or the end of the context was reached")


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
