"""One download from a hub: list, choose, fetch what is missing, check."""

from __future__ import annotations

import logging
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from framework.contracts.model_source import ModelQuery
from framework.errors import ModelError
from framework_model_sources.choose import GGUF, choose_weights, parts_of, small_files
from framework_model_sources.hub_errors import is_broken_off, is_unreachable, model_error
from framework_model_sources.local import weights_in
from framework_model_sources.watch import Watch, bar_for

if TYPE_CHECKING:
    from framework_model_sources.hub import HubName

LOGGER = logging.getLogger("framework.model_sources")
TIMEOUT_S = 20.0


class Download:
    """name: what `query.name` says."""

    def __init__(self, name: HubName, query: ModelQuery) -> None:
        self.name = name
        self.query = query

    def run(self) -> tuple[Path, tuple[Path, ...]]:
        """(folder, weight files).  Raises ModelError."""
        try:
            commit, names = self._list()
        except Exception as error:
            if not is_unreachable(error):
                raise model_error(error, self.name.repo, self.query) from error
            return self._cached(error)
        weights = self._weights(names)
        wanted = [*small_files(names), *weights]
        for name in weights:
            self._fetch(name, commit)
        try:
            folder = self._snapshot(wanted, offline=False)
        except Exception as error:
            raise model_error(error, self.name.repo, self.query, fetching=True) from error
        return folder, self._present(folder, weights)

    def _list(self) -> tuple[str | None, list[str]]:
        """(commit, names of the files)."""
        from huggingface_hub import HfApi

        info = HfApi(token=self.query.token).model_info(
            self.name.repo, revision=self.query.revision, timeout=TIMEOUT_S
        )
        return info.sha, [file.rfilename for file in info.siblings or ()]

    def _fetch(self, name: str, commit: str | None) -> None:
        """One large file into the cache, where the snapshot finds it."""
        from huggingface_hub import hf_hub_download

        watch = Watch(f"{self.name.repo}: {name}")
        try:
            hf_hub_download(
                self.name.repo,
                name,
                revision=commit or self.query.revision,
                token=self.query.token,
                etag_timeout=TIMEOUT_S,
                tqdm_class=bar_for(watch),
            )
        except Exception as error:
            told = model_error(error, self.name.repo, self.query, fetching=True)
            raise (watch.error(told.message) if is_broken_off(error) else told) from error

    def _weights(self, names: list[str]) -> list[str]:
        """The weight files to fetch, of the files that the repository has."""
        where = f"{self.name.repo} (hub)"
        if self.name.file is not None:
            if self.name.file not in names:
                listed = sorted(name for name in names if name.lower().endswith(GGUF))
                raise ModelError(
                    f"{where} has no file {self.name.file!r}",
                    expected=f"one of {', '.join(listed[:12])}" if listed else "a GGUF file",
                    found=self.name.file,
                    mend="correct the name of the file",
                )
            return parts_of(self.name.file, names)
        if not self.query.want_weights and "config.json" in names:
            return []
        chosen = choose_weights(names, where)
        if self.query.want_weights and not chosen:
            raise ModelError(
                f"{where} holds no weights",
                expected="files *.safetensors, *.gguf or *.bin",
                found=", ".join(sorted(names)[:8]) or "an empty repository",
                mend="name the repository of a complete model",
            )
        # Only a GGUF file is also a configuration; other weights were not asked for.
        wanted = self.query.want_weights or all(name.lower().endswith(GGUF) for name in chosen)
        return chosen if wanted else []

    def _snapshot(self, names: list[str] | None, *, offline: bool) -> Path:
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(
                self.name.repo,
                revision=self.query.revision,
                token=self.query.token,
                allow_patterns=None if names is None else [escape(name) for name in names],
                local_files_only=offline,
                etag_timeout=TIMEOUT_S,
            )
        )

    def _cached(self, cause: Exception) -> tuple[Path, tuple[Path, ...]]:
        """What an earlier download left, when the hub cannot be reached."""
        try:
            folder = self._snapshot(None, offline=True)
        except Exception as error:
            # Only some files were fetched then, as should be; the choice below checks them.
            partial = getattr(error, "snapshot_path", None)
            if partial is None:
                raise model_error(cause, self.name.repo, self.query) from cause
            folder = Path(partial)
        if self.name.file is not None:
            names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
            files = self._present(folder, self._weights(names))
        else:
            files = weights_in(folder, want_weights=self.query.want_weights)
        LOGGER.warning(
            "%s: the hub cannot be reached; using the copy fetched before (%s)",
            self.name.repo,
            folder.name,
        )
        return folder, files

    def _present(self, folder: Path, names: list[str]) -> tuple[Path, ...]:
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(
                f"{self.name.repo}: files are missing after the download",
                expected=", ".join(names),
                found=f"no {', '.join(missing)}",
                mend="run again to fetch the rest",
            )
        return tuple(folder / name for name in names)
