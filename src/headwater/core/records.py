"""What a record is made of, and how a long message becomes several of them."""

from __future__ import annotations

from headwater.core import limits

# Flags of one record. Frozen: they are stored.
APPEND_START = 1
"""First record of its append."""
CONTINUES = 2
"""The message goes on in the next record."""
COMMAND = 4
"""An S2 command record: takes a sequence number, shows no bytes to the other dialects."""
HAS_HEADERS = 8


def split_message(message: bytes) -> list[bytes]:
    """Cut a message into record bodies. An empty message is one empty record."""
    size = limits.RECORD_BODY_BYTES_MAX
    if len(message) <= size:
        return [message]
    return [message[at : at + size] for at in range(0, len(message), size)]
