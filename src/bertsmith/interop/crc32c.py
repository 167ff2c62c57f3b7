"""CRC-32C (Castagnoli) of large arrays of bytes, and TensorFlow's way of storing it.

The bytes are cut into many rows of equal length whose sums numpy computes side by side and which are then put
together: the sum of two parts follows from theirs, because it is linear.

Source: RFC 3720, appendix B.4 (polynomial, test values); tensorflow, core/lib/hash/crc32c.h (the mask).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # reflected
_MASK_DELTA = 0xA282EAD8
_ROW_BYTES = 1024
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """Return the CRC-32C of bytes."""
    given = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    rows = 1 << (len(given) // _ROW_BYTES).bit_length()
    length = -(-len(given) // rows)
    columns = np.zeros(rows * length, np.uint8)
    columns[rows * length - len(given) :] = given  # zeros in front change nothing in a sum that begins at 0
    table = _table()
    sums = np.zeros(rows, np.uint32)
    for column in np.ascontiguousarray(columns.reshape(rows, length).T):
        sums = table[(sums ^ column) & 0xFF] ^ (sums >> 8)
    while len(sums) > 1:
        sums = _after_zeros(sums[0::2], length) ^ sums[1::2]
        length *= 2
    begun = _after_zeros(np.array([0xFFFFFFFF], np.uint32), len(given))
    return int(sums[0] ^ begun[0]) ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a sum as TensorFlow stores it, so that a sum over data that holds sums stays a good one."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> NDArray[np.uint32]:
    """Return what a byte makes of an empty sum, uint32 ``(256,)``."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


def _after_zeros(sums: NDArray[np.uint32], num_bytes: int) -> NDArray[np.uint32]:
    """Return sums after so many further zero bytes: a linear map, applied by squaring."""
    images = _table()[_BITS & 0xFF] ^ (_BITS >> 8)  # of each bit, after one byte
    while num_bytes:
        if num_bytes & 1:
            sums = _applied(images, sums)
        images = _applied(images, images)
        num_bytes >>= 1
    return sums


def _applied(images: NDArray[np.uint32], sums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    result = np.zeros_like(sums)
    for bit, image in zip(_BITS, images, strict=True):
        result ^= np.where(sums & bit, image, np.uint32(0))
    return result
