"""Keys for encrypted streams, and buckets that have their new streams encrypted."""

from __future__ import annotations

from base64 import b64encode

from headwater.core.buckets import BucketConfig
from headwater.core.ciphers import CIPHERS, KEY_BYTES
from headwater.core.commands import ProvisionMode
from tests.support.engines import EngineRunner

RAW = bytes(range(KEY_BYTES))
KEY = b64encode(RAW).decode()
OTHER_KEY = b64encode(bytes(KEY_BYTES)).decode()

WITH_KEY = {"s2_encryption_key": KEY}
WITH_OTHER = {"s2_encryption_key": OTHER_KEY}
"""As headers of a request."""

__all__ = ["CIPHERS", "KEY", "OTHER_KEY", "RAW", "WITH_KEY", "WITH_OTHER", "encrypt_bucket"]


def encrypt_bucket(runner: EngineRunner, bucket: str, cipher: str | None = CIPHERS[0]) -> None:
    """Streams made in it from now on are encrypted; or not, with None."""
    config = BucketConfig(stream_cipher=cipher)
    runner.result(runner.engine.provision_bucket(bucket, ProvisionMode.ENSURE, config))
