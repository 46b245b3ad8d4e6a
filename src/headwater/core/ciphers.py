"""Which ciphers a stream can be encrypted with. S2 API: encryption.

The names are S2's. What is done with them is in engine/sealing.py; no key ever comes here.
"""

from __future__ import annotations

AEGIS_256 = "aegis-256"
AES_256_GCM = "aes-256-gcm"
CIPHERS = (AEGIS_256, AES_256_GCM)

KEY_BYTES = 32
SEAL_ID_BYTES = 32
"""Of the random id that the records of one stream are sealed for."""
