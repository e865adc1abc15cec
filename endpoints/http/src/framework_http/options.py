"""What an operator can set of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator


class HostOptions(BaseModel):
    """Options of `front_end:http`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port; 0 takes a free one.")
    uds: Path | None = Field(default=None, description="A unix socket, instead of host and port.")
    api_keys: tuple[SecretStr, ...] = Field(
        default=(),
        description='Keys that clients may use, each as "key" or "tenant:key"; none: no key is '
        "asked for.",
    )
    max_body_bytes: int = Field(default=16 * 2**20, ge=1, description="Largest request body.")
    max_body_values: int = Field(
        default=2**19,
        ge=1,
        description="Most values of a body of JSON; each list, each object and each field counts "
        "as 8, and 8 escaped characters as one. While a body is read nobody else is served: some "
        "50 ms for these.",
    )
    max_header_bytes: int = Field(
        default=32 * 2**10, ge=1024, description="Largest head of a request."
    )
    read_seconds: float = Field(
        default=60.0,
        gt=0,
        description="In which a request has to arrive whole; then its connection is ended.",
    )
    write_seconds: float = Field(
        default=60.0,
        gt=0,
        description="For how long a client may take nothing of its answer; then its connection is "
        "ended, and with it its request.",
    )
    max_concurrent: int | None = Field(
        default=None,
        ge=1,
        description="Most requests at one time; more get 503, but for those that need no key.",
    )
    ssl_certfile: Path | None = Field(default=None, description="Certificate; turns TLS on.")
    ssl_keyfile: Path | None = Field(
        default=None, description="Key of the certificate, where that file does not hold it."
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Origins of web pages that may call the server."
    )
    root_path: str = Field(
        default="",
        pattern="^(/.*[^/])?$",
        description="Where a proxy mounts the server, such as /llm, whether it cuts that off or "
        "not.",
    )
    access_log: bool = Field(default=False, description="A log line for each request.")

    @model_validator(mode="after")
    def _key_of_a_certificate(self) -> Self:
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile needs ssl_certfile, the certificate that it belongs to")
        return self
