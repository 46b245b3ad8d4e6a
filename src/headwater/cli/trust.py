"""Which certificates the commands that ask a server trust."""

from __future__ import annotations

import os
import ssl

CA_FILE_VARIABLE = "HEADWATER_CA_FILE"


def trusted() -> ssl.SSLContext | None:
    """Those in the file that the variable names; None for the system's. Raises OSError."""
    path = os.environ.get(CA_FILE_VARIABLE)
    if not path:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(f"the certificates to trust cannot be read: {reason}. file={path}") from error
