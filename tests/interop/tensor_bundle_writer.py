"""A plain writer of TensorFlow's checkpoint files, from their published format alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19, "bfloat16": 14}


def bitwise_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_sum(data: bytes) -> int:
    crc = bitwise_crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    result = b""
    while number >= 0x80:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


def number_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def entry(
    kind: int, shape: tuple[int, ...], shard: int, start: int, data: bytes, sliced: bool = False
) -> bytes:
    sizes = b"".join(bytes_field(2, number_field(1, size)) for size in shape)
    message = number_field(1, kind) + bytes_field(2, sizes)
    message += number_field(3, shard) + number_field(4, start) + number_field(5, len(data))
    message += varint(6 << 3 | 5) + struct.pack("<I", masked_sum(data))
    return message + (bytes_field(7, b"") if sliced else b"")


def block(pairs: list[tuple[bytes, bytes]], kind: int = 0, restart_every: int = 4) -> bytes:
    """One block of a table with its byte for the compression and its sum; keys share their beginnings."""
    content, restarts, last = b"", [], b""
    for place, (key, value) in enumerate(pairs):
        shared = 0
        if place % restart_every == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + bytes([kind])
    return content + struct.pack("<I", masked_sum(content))


def table(pairs: list[tuple[bytes, bytes]], per_block: int = 7, kind: int = 0) -> bytes:
    data, handles = b"", []
    for first in range(0, len(pairs), per_block):
        part = pairs[first : first + per_block]
        written = block(part, kind)
        handles.append((part[-1][0], varint(len(data)) + varint(len(written) - 5)))
        data += written
    places = []
    for content in ([], handles):
        written = block(content)
        places += [varint(len(data)), varint(len(written) - 5)]
        data += written
    return data + b"".join(places).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write_checkpoint(
    prefix: Path, tensors: Mapping[str, np.ndarray], shards: int = 1, big_endian: bool = False, kind: int = 0
) -> None:
    """Write PREFIX.index and the data files, the tensors dealt out to them in turn."""
    header = number_field(1, shards) + (number_field(2, 1) if big_endian else b"")
    pairs, files = [(b"", header)], [b""] * shards
    for place, (name, values) in enumerate(sorted(tensors.items())):
        shard = place % shards
        data = np.ascontiguousarray(values).tobytes()
        kinds = KINDS[str(values.dtype)]
        pairs.append((name.encode(), entry(kinds, values.shape, shard, len(files[shard]), data)))
        files[shard] += data
    for shard, content in enumerate(files):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(pairs, kind=kind))
