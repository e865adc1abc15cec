"""The entry point of the compiler `inductor`: torch's own, ahead of time, by way of C++.

torch is imported on first use, what compiles in a process of its own alone.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.compiler import Compiler, CompilerQuery, Piece
from framework.errors import ModelError, UnsupportedError
from framework.plugins.tied import ending, order, tied

CHILD = "framework_torch.compiling.child"
VARIABLE = "CXX"
USUAL = "g++"
NAME = "model"
"""Of the code in a package, as torch calls it where nobody says."""

_SERVED: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("tensor_api", ("torch",)),
    ("device", ("cpu",)),
    ("dtype", ("float32", "bfloat16", "float16")),
)


def cpp_compiler() -> str | None:
    """Where the compiler of C++ is that torch would take; None where there is none."""
    return shutil.which(os.environ.get(VARIABLE, USUAL))


class InductorCompiler(Compiler):
    """Code is a package of AOTInductor, which holds a shared library."""

    def answer(self, query: CompilerQuery) -> Answer:
        reasons = [
            Rejection(
                code=field,
                field=field,
                found=getattr(query, field),
                needed=" or ".join(map(str, values)),
                remedy="leave out `compiler`, or use another one",
            )
            for field, values in _SERVED
            if getattr(query, field) not in values
        ]
        if cpp_compiler() is None:
            name = os.environ.get(VARIABLE, USUAL)
            reasons.append(
                Rejection(
                    code="no_compiler",
                    field="",
                    found=f"no program {name!r:.80}",
                    needed="a compiler of C++",
                    remedy=f"install one (apt-get install g++), name it in {VARIABLE}, or choose "
                    "-O2, which needs none",
                )
            )
        if reasons:
            return Rejected(tuple(reasons))
        return Supported(note="ahead of time, for this processor")

    def identity(self) -> str:
        import torch

        return "; ".join(
            (
                f"torch {torch.__version__}",
                _version_of(cpp_compiler() or USUAL),
                f"{platform.system()} {platform.machine()}",
                f"{torch.backends.cpu.get_cpu_capability()} {_processor()}",
                f"{torch.get_num_threads()} threads",
            )
        )

    def compile(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        import torch

        with tempfile.TemporaryDirectory(prefix="framework-compile-") as folder:
            said = {
                "folder": folder,
                "threads": torch.get_num_threads(),
                "pieces": pickle.dumps(tuple(pieces)),
            }
            with (
                open(Path(folder) / "output.txt", "wb") as output,
                tied(CHILD, stdout=output, stderr=output) as process,
            ):
                order(process, said)
                process.wait()
            files = [Path(folder) / f"{number}.pt2" for number in range(len(pieces))]
            if process.returncode or not all(path.is_file() for path in files):
                raise _failed(pieces, Path(folder), process.returncode)
            return [path.read_bytes() for path in files]

    def load(self, code: bytes) -> Callable[..., Any]:
        import torch

        # What `torch._inductor.aoti_load_package` wraps; that reads a description of the arguments
        # anew in each call, and its import takes a second and 70 MB.
        from torch._C._aoti import AOTIModelPackageLoader

        try:
            with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
                file.write(code)
                file.flush()
                run = AOTIModelPackageLoader(file.name, NAME, False, 1, -1).boxed_run
        except (RuntimeError, ValueError, EOFError, OSError) as error:
            raise ModelError(
                "compiled code cannot be loaded",
                expected="a package of AOTInductor for this machine",
                found=str(error) or type(error).__name__,
                mend="compile it anew",
            ) from error

        def call(*tensors: torch.Tensor) -> torch.Tensor:
            (result,) = run(list(tensors))
            return result

        return call


def _failed(pieces: Sequence[Piece], folder: Path, code: int) -> UnsupportedError:
    from framework_torch.compiling.child import ERROR

    said = folder / (ERROR if (folder / ERROR).is_file() else "output.txt")
    text = said.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
    names = ", ".join(dict.fromkeys(piece.name for piece in pieces))
    return UnsupportedError(
        f"{names} cannot be compiled",
        expected=f"code from torch's inductor and {cpp_compiler() or USUAL}",
        found=f"{ending(code)}; {text}" if text else ending(code),
        mend=f"mend the compiler of C++, name another in {VARIABLE}, or choose -O2",
    )


def _version_of(program: str) -> str:
    """The first line that it says of itself, or why it says none."""
    try:
        found = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program}: {error}"
    return (found.stdout or found.stderr).partition("\n")[0].strip() or program


def _processor() -> str:
    """What tells one processor from others with another set of instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return platform.processor()
    first = dict(tuple(map(str.strip, line.split(":", 1))) for line in lines[:40] if ":" in line)
    told = first.get("model name", ""), first.get("flags", first.get("Features", ""))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
