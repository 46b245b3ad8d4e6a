"""Every limit that the protocols or the storage format fix. What operators tune is in settings."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

RECORD_BODY_BYTES_MAX = MIB - 64 * KIB
"""A longer message becomes several records, so that each still fits an S2 record of 1 MiB."""

RECORD_HEADERS_BYTES_MAX = 64 * KIB - 8
"""Names and values of a record's headers, and two bytes for each: what such a record has left."""

APPEND_RECORDS_MAX = 250_000
"""Records in one append. It is applied in one go, so this bounds how long the others wait."""

AES_RECORDS_MAX = 2**32
"""Of a stream encrypted with AES-256-GCM: its nonces are chance, and with more of them two might be
the same. NIST SP 800-38D §8.3."""

FENCING_TOKEN_BYTES_MAX = 36
"""S2 API: names and limits."""

RECORD_HEADERS_MAX = 2**16 - 1
"""Pairs of one record: what its stored count can say."""

BUCKET_NAME_BYTES_MAX = 64
STREAM_NAME_BYTES_MAX = 512
CONTENT_TYPE_BYTES_MAX = 256
STREAM_SEQ_BYTES_MAX = 1 * KIB
PRODUCER_ID_BYTES_MAX = 1 * KIB
ATTRIBUTES_BYTES_MAX = 16 * KIB

PRODUCER_NUMBER_MAX = 2**53 - 1
"""Largest epoch or sequence: what every JSON number can carry. PROTOCOL §5.2.1."""

PRODUCERS_KEPT_MAX = 10_000
PRODUCERS_HARD_MAX = 100_000
PRODUCER_IDLE_MS_MAX = 7 * 24 * 3600 * 1000
PRODUCER_IDLE_MS_MIN = 3600 * 1000
"""A producer heard of within the last hour is never forgotten, whatever the count."""

LIFETIME_MS_MAX = 2**53 - 1
"""Times beyond this mean "never"; it keeps deadlines inside what every client can represent."""

TTL_TOUCH_FRACTION = 4
"""A renewed TTL is written to disk once a quarter of it has passed since the last write."""
