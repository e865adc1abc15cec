"""The device in the worker.  torch is imported, and a CUDA context is made."""

from __future__ import annotations

from framework.errors import ConfigError


def start(logical: int) -> str | None:
    """Make a device the current one; its UUID without the part before the first "-", or None
    where torch does not tell it.  Raises ConfigError where torch cannot use it."""
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            "torch cannot use CUDA, though driver and GPU are there",
            expected="torch.cuda.is_available()",
            found=f"torch {torch.__version__}, built for CUDA {torch.version.cuda}",
            mend="run `python -m torch.utils.collect_env`, or use --set platform=cpu",
        )
    torch.cuda.set_device(logical)
    uuid = getattr(torch.cuda.get_device_properties(logical), "uuid", None)
    return None if uuid is None else str(uuid)
