"""A whole set of plugins without files or torch: a model that echoes its prompt.

    LLM("echo://", plugins=fake_plugins(), executor="echo")

answers each prompt with the prompt and an end of sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.executor import Executor
from framework.contracts.kv_cache_spec import EncoderOnlySpec
from framework.contracts.model_source import ModelFiles, ModelQuery, ModelSource
from framework.contracts.step import AdmittedRequest
from framework.contracts.tokenizer import Tokenizer, TokenizerLoader
from framework.contracts.weight_loader import WeightLoader, WeightQuery, Weights
from framework.errors import UnsupportedError
from framework.testing.byte_tokenizer import EOS, ByteTokenizer
from framework.testing.scripted import ScriptedRunner

NAME = "echo"
MODEL = "echo://"
"""What to call the model: no path and no hub id, so that no other source knows it."""
_ROOT = Path("echo-model")


def fake_plugins() -> dict[str, str]:
    """What to pass as `plugins`."""
    return {
        f"model_source:{NAME}": f"{__name__}:EchoSource",
        f"weight_loader:{NAME}": f"{__name__}:EchoLoader",
        f"tokenizer:{NAME}": f"{__name__}:EchoTokenizer",
        f"executor:{NAME}": f"{__name__}:EchoExecutor",
    }


def echo(request: AdmittedRequest, position: int, before: int) -> int:
    """The token of the prompt at the same place, then end of sequence."""
    place = position - request.num_prompt
    return int(request.tokens[place]) if place < request.num_prompt else EOS


def _only(field: str, found: object, matches: bool) -> Answer:
    if matches:
        return Supported(note="the echo model")
    remedy = f"ask for the model {MODEL!r}"
    reason = Rejection(code="name", field=field, found=found, needed=MODEL, remedy=remedy)
    return Rejected((reason,))


class EchoSource(ModelSource):
    """Knows the name "echo://"."""

    def answer(self, query: ModelQuery) -> Answer:
        return _only("name", query.name, query.name == MODEL)

    def fetch(self, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
        return _ROOT, ()


class EchoLoader(WeightLoader):
    """Has a configuration and no weights."""

    def answer(self, query: WeightQuery) -> Answer:
        return _only("root", query.root, query.root == _ROOT)

    def config(
        self, root: Path, files: tuple[Path, ...]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return {"architectures": ["Echo"]}, {"temperature": 0.5, "eos_token_id": [EOS]}

    def open(self, model: ModelFiles) -> Weights:
        raise UnsupportedError("the echo model has no weights")


class EchoTokenizer(TokenizerLoader):
    """Loads a ByteTokenizer."""

    def answer(self, query: WeightQuery) -> Answer:
        return _only("root", query.root, query.root == _ROOT)

    def load(self, model: ModelFiles) -> Tokenizer:
        return ByteTokenizer()


class EchoOptions(BaseModel):
    """delay: seconds of a step.  max_model_len: in tokens.  num_pages: of 4 tokens.
    embedding_size: of vectors, 0: it makes none.  encoder: it makes vectors and nothing else.
    class_labels: separated by commas; it tells prompts apart by these and does nothing else."""

    delay: float = 0.0
    max_model_len: int = 256
    num_pages: int = 512
    embedding_size: int = 0
    encoder: bool = False
    class_labels: str = ""


class EchoExecutor(ScriptedRunner, Executor):
    """A scripted runner that echoes."""

    Options = EchoOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        chosen = options if isinstance(options, EchoOptions) else EchoOptions()
        whole = chosen.encoder or bool(chosen.class_labels)
        super().__init__(
            echo,
            vocab_size=ByteTokenizer().vocab_size,
            num_pages=chosen.num_pages,
            max_model_len=chosen.max_model_len,
            delay=chosen.delay,
            embedding_size=chosen.embedding_size or (8 if chosen.encoder else None),
            class_labels=[label for label in chosen.class_labels.split(",") if label],
            layers={"layer.0": EncoderOnlySpec()} if whole else None,
        )
        self.options = chosen
