"""The safetensors format: one file, or shards with an index.  torch is imported in `open`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import WeightLoader, WeightQuery, Weights
from framework.errors import ModelError
from framework.shown import shown

if TYPE_CHECKING:
    import torch

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
DAMAGED = "fetch the file again: it is damaged or was cut off"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.  Raises ModelError with the path."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{path} does not exist",
            expected=f"a model folder with {CONFIG}",
            found=f"no {path.name} in {path.parent}",
            mend="name a complete model folder",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read", expected="a JSON object", found=error, mend=DAMAGED
        ) from error
    if not isinstance(value, dict):
        raise ModelError(
            f"{path} cannot be read", expected="a JSON object", found=type(value).__name__
        )
    return value


class SafetensorsLoader(WeightLoader):
    """Folders as Transformers' `save_pretrained` writes them."""

    def answer(self, query: WeightQuery) -> Answer:
        reasons: list[tuple[str, object, str]] = []
        others = [path.name for path in query.files if path.suffix != SUFFIX]
        dummy = query.load_format == "dummy"
        if query.load_format not in ("auto", "safetensors", "dummy"):
            reasons.append(("load_format", query.load_format, "auto, safetensors or dummy"))
        if others or not (query.files or dummy):
            reasons.append(("files", others or "no files", f"files that end in {SUFFIX}"))
        if not (query.root / CONFIG).is_file():
            reasons.append(("root", str(query.root), f"a folder with {CONFIG}"))
        if not reasons:
            return Supported(note="no weights are read" if dummy else "by memory map")
        return Rejected(
            tuple(
                Rejection(
                    code=field,
                    field=field,
                    found=found,
                    needed=needed,
                    remedy="name a folder with a safetensors model",
                )
                for field, found, needed in reasons
            )
        )

    def config(
        self, root: Path, files: tuple[Path, ...]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        config = read_json(root / CONFIG)
        names = config.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise ModelError(
                f"{root / CONFIG} names no architecture",
                expected='"architectures": ["..."]',
                found=shown(names),
                mend="add the name of the model's class",
            )
        path = root / GENERATION_CONFIG
        return config, read_json(path) if path.is_file() else {}

    def open(self, model: ModelFiles) -> Weights:
        return SafetensorsWeights(_shards(model))


def _shards(model: ModelFiles) -> tuple[Path, ...]:
    """The files of the model.  With an index only those that it names count: folders may
    hold the same weights a second time in another naming."""
    path = model.root / INDEX
    if not path.is_file():
        return model.weights
    table = read_json(path).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        raise ModelError(f"{path} has no weight_map", expected="tensor name -> file name")
    shards = sorted(set(table.values()))
    for name in shards:
        if Path(name).name != name:
            raise ModelError(f"{path} names a file outside of its folder", found=name)
        if not (model.root / name).is_file():
            raise ModelError(
                f"{path} names a shard that is not there",
                expected=str(model.root / name),
                found="no such file",
                mend="fetch the missing shard",
            )
    return tuple(model.root / name for name in shards)


class SafetensorsWeights:
    """Tensors of all shards, as views of memory maps.

    The library checks the files.  Of the types that weights have, each tensor gets a map of its
    own, see `MappedFile`.
    """

    naming = "hf"

    def __init__(self, files: tuple[Path, ...]) -> None:
        self._handles: dict[Path, Any] = {}
        self._files: dict[str, Path] = {}
        self._places: dict[Path, Places] = {}
        for path in files:
            handle = _open(path)
            self._handles[path], self._places[path] = handle, Places(path)
            for name in handle.keys():  # noqa: SIM118 - not a mapping
                if name in self._files:
                    raise ModelError(
                        f"tensor {name!r} is in two files",
                        expected="each tensor once",
                        found=f"{self._files[name]} and {path}",
                        mend="remove the file that does not belong to the model",
                    )
                self._files[name] = path

    def names(self) -> Iterator[str]:
        return iter(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._handle(name).get_slice(name).get_shape())

    def source(self, name: str) -> str:
        return str(self._files[name])

    def get(self, name: str) -> torch.Tensor:
        return self._read(name, None)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """See `framework.contracts.weight_loader.RowWeights`."""
        return self._read(name, (start, stop))

    def _read(self, name: str, rows: tuple[int, int] | None) -> torch.Tensor:
        """All rows without `rows`."""
        try:
            tensor = self._places[self._files[name]].tensor(name, rows)
            if tensor is None:
                tensor = self._handle(name).get_tensor(name)[slice(*rows) if rows else ...]
        except Exception as error:  # safetensors and torch raise classes of their own
            raise ModelError(
                f"tensor {name!r} in {self._files[name]} cannot be read", found=error, mend=DAMAGED
            ) from error
        if not tensor.is_floating_point():
            raise ModelError(
                f"tensor {name!r} in {self._files[name]} has an unexpected type",
                expected="a floating-point type",
                found=str(tensor.dtype),
                mend="use a checkpoint that is not quantized",
            )
        found: torch.Tensor = tensor
        return found

    def _handle(self, name: str) -> Any:
        return self._handles[self._files[name]]


class Places:
    """Where the tensors of one file lie, by its header, which is known to be sound."""

    def __init__(self, path: Path) -> None:
        from framework_torch.weights.mapped import MappedFile

        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self._header = json.loads(file.read(length))
        self._start = 8 + length
        self._file = MappedFile(path)

    def tensor(self, name: str, rows: tuple[int, int] | None) -> torch.Tensor | None:
        """rows: first, and the one behind the last, or all.  None for a type that is left to the
        library.  Raises OSError, ValueError."""
        import torch

        types = {
            "F64": torch.float64,
            "F32": torch.float32,
            "F16": torch.float16,
            "BF16": torch.bfloat16,
        }
        entry = self._header[name]
        dtype = types.get(entry["dtype"])
        begin, end = entry["data_offsets"]
        if dtype is None or (self._start + begin) % dtype.itemsize:
            return None
        shape = entry["shape"]
        if rows is not None:
            each = (end - begin) // shape[0]
            begin, end = begin + rows[0] * each, begin + rows[1] * each
            shape = [rows[1] - rows[0], *shape[1:]]
        raw = self._file.part(self._start + begin, end - begin)
        return torch.from_numpy(raw).view(dtype).reshape(shape)


def _open(path: Path) -> Any:
    """A handle on one file.  Its header is checked against the file's length here."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        size = path.stat().st_size if path.is_file() else "no such file"
        raise ModelError(
            f"{path} cannot be opened as safetensors",
            expected="a header that agrees with the length of the file",
            found=f"{error} (size: {size})",
            mend=DAMAGED,
        ) from error
