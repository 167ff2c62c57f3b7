"""CRC-32C against the values that RFC 3720 gives, and a bitwise sum."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.interop.crc32c import crc32c, masked
from tests.interop.tensor_bundle_writer import bitwise_crc32c


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"\x00" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_published_values(data, expected):
    assert crc32c(data) == expected


@pytest.mark.parametrize("length", [1, 2, 1023, 1024, 1025, 4099])
def test_any_length_gives_the_bitwise_sum(length):
    data = np.random.default_rng(length).integers(0, 256, length).astype(np.uint8)
    assert crc32c(data) == crc32c(data.tobytes()) == bitwise_crc32c(data.tobytes())


def test_the_mask_is_that_of_leveldb():
    """As its own test says: a masked sum is another number, and masking twice another again."""
    crc = crc32c(b"foo")
    rotated = (crc >> 15) | ((crc & 0x7FFF) << 17)
    assert masked(crc) == (rotated + 0xA282EAD8) % 2**32
    assert len({crc, masked(crc), masked(masked(crc))}) == 3
