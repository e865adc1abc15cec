"""Which of a model's files to use, from their names: the same rules for a folder and a hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

from framework.errors import ModelError

GGUF = ".gguf"
# What a model needs beside its weights.  *.py is for models with code of their own, which is
# run only if the user trusts it.
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")
# Files that end like weights and are not those of the model.
_OTHER = (
    "consolidated*",  # the same weights once more, in their author's own naming
    "adapter_*",
    "training_args*",
    "optimizer*",
    "scheduler*",
    "rng_state*",
    "mmproj*",
    "imatrix*",
)
_PART_OF_CHAIN = re.compile(r"\d+_[A-Za-z]+/config\.json\Z")
_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})(?P<suffix>\.\w+)\Z")


def small_files(names: Iterable[str]) -> list[str]:
    """Configuration, tokenizer and templates, of the top folder; and what the folders of
    sentence-transformers say of pooling."""
    return [
        name
        for name in names
        if _PART_OF_CHAIN.match(name)
        or ("/" not in name and any(fnmatch(name, pattern) for pattern in SMALL_FILES))
    ]


def choose_weights(names: Iterable[str], where: str) -> list[str]:
    """The weight files in order: safetensors, else GGUF, else PyTorch's; [] if there are none.

    ModelError if parts are missing, or if several GGUF files are different models.
    """
    top = sorted(name for name in names if "/" not in name)
    own = [name for name in top if not any(fnmatch(name, pattern) for pattern in _OTHER)]
    safetensors = [name for name in own if name.endswith(".safetensors")]
    if safetensors:
        return _whole(safetensors, where)
    gguf = [name for name in own if name.lower().endswith(GGUF)]
    if gguf:
        return _one_gguf(gguf, where)
    torch_files = [name for name in own if name.endswith(".bin")]
    return _whole(torch_files or [name for name in own if name.endswith((".pt", ".pth"))], where)


def parts_of(name: str, names: Iterable[str]) -> list[str]:
    """The file, or all parts of the split model that it belongs to, in order."""
    match = _PART.match(name)
    if match is None:
        return [name]
    wanted = (match["stem"], match["parts"], match["suffix"])
    return sorted(
        other
        for other in names
        if (found := _PART.match(other))
        and (found["stem"], found["parts"], found["suffix"]) == wanted
    )


def _one_gguf(names: Sequence[str], where: str) -> list[str]:
    models = {tuple(parts_of(name, names)) for name in names}
    if len(models) > 1:
        raise ModelError(
            f"{where} holds several GGUF models",
            expected="one",
            found=", ".join(sorted(parts[0] for parts in models)),
            mend="name one of them: FOLDER/FILE.gguf, or ORG/NAME:FILE.gguf of a hub",
        )
    return _whole(names, where)


def _whole(names: Sequence[str], where: str) -> list[str]:
    """The names, after a check that each numbered part is there."""
    for name in names:
        match = _PART.match(name)
        if match is None:
            continue
        present = {m["part"] for other in parts_of(name, names) if (m := _PART.match(other))}
        wanted = int(match["parts"])
        if len(present) != wanted:
            raise ModelError(
                f"{where}: parts of the weights are missing",
                expected=f"{wanted} files like {name}",
                found=len(present),
                mend="fetch the missing files",
            )
    return list(names)
