"""Whether the server can listen as its options say, known before it tries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from framework.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

    from framework_http.options import HostOptions


async def check_address(config: uvicorn.Config, options: HostOptions) -> None:
    """Raises ConfigError for a certificate that cannot be used, and for a unix socket where
    somebody listens: it would be taken away from them."""
    try:
        config.load()
    except OSError as error:  # ssl.SSLError, too
        raise ConfigError(
            "the certificate of the HTTP server cannot be used",
            expected="a file of PEM in ssl_certfile, and its key there or in ssl_keyfile",
            found=f"{options.ssl_certfile}, {options.ssl_keyfile or 'no other file'}: {error}",
            mend="give files that the server may read, and a key that belongs to the certificate",
        ) from error
    if options.uds is None:
        return
    try:
        _, writer = await asyncio.open_unix_connection(options.uds)
    except OSError:
        return  # nobody listens; whether the server can is seen when it tries
    writer.close()
    raise cannot_listen(options)


def cannot_listen(options: HostOptions, reason: OSError | None = None) -> ConfigError:
    """The error for an address that cannot be used.  reason: where nobody has told it yet."""
    if options.uds is None:
        expected, place = (
            "an address of this machine that is free",
            f"{options.host}:{options.port}",
        )
        mend = "choose another one with --host and --port, or end who listens there"
    else:
        expected, place = "a unix socket that nobody uses, or nothing there", str(options.uds)
        mend = "choose another one with --uds, in a folder that exists, of some 100 characters"
    found = place if reason is None else f"{place}: {reason}"
    return ConfigError("the HTTP server cannot listen", expected=expected, found=found, mend=mend)
