"""Compression of what the run file keeps: chunks of input, and raw replies with a shared dictionary.

Replies of one server are alike, so a dictionary is trained on the first 64 KB of them, which takes the rest to a tenth
or a fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import zstandard

PLAIN, PACKED, PACKED_WITH_DICTIONARY = 0, 1, 2
SMALLEST_BYTES = 64
DICTIONARY_BYTES = 16_384
SAMPLE_BYTES = 65_536
LEVEL = 3  # of replies and answers: with a dictionary it takes as long as level 1 and gives a seventh less


def dictionary_of(samples: Sequence[bytes]) -> bytes:
    """A dictionary for what is like these; as good as they are, where they are too few to train one on."""
    try:
        return zstandard.train_dictionary(DICTIONARY_BYTES, list(samples)).as_bytes()
    except zstandard.ZstdError:
        return b"".join(samples)[:DICTIONARY_BYTES]


class Packer:
    """Compresses and expands; one for each thread."""

    def __init__(self, dictionary: bytes | None = None) -> None:
        self._chunks = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._expander = zstandard.ZstdDecompressor()
        self._plain = zstandard.ZstdCompressor(level=LEVEL)
        self.dictionary = dictionary
        self._with_dictionary: zstandard.ZstdCompressor | None = None
        self._dictionary_expander: zstandard.ZstdDecompressor | None = None
        if dictionary:
            shared = zstandard.ZstdCompressionDict(dictionary)
            shared.precompute_compress(level=LEVEL)
            self._with_dictionary = zstandard.ZstdCompressor(level=LEVEL, dict_data=shared)
            self._dictionary_expander = zstandard.ZstdDecompressor(dict_data=shared)

    def pack_chunk(self, payload: bytes) -> bytes:
        return self._chunks.compress(payload)

    def unpack_chunk(self, packed: bytes) -> bytes:
        """Raises zstandard.ZstdError when the bytes are damaged."""
        return self._expander.decompress(packed)

    def pack_bodies(self, bodies: Sequence[bytes | None]) -> list[tuple[int, bytes | None]]:
        """How each is packed, and its bytes."""
        how, compressor = PACKED, self._plain
        if self._with_dictionary is not None:
            how, compressor = PACKED_WITH_DICTIONARY, self._with_dictionary
        packed = _pack_long(compressor, bodies)
        return [(PLAIN if after is before else how, after) for before, after in zip(bodies, packed, strict=True)]

    def pack_answers(self, answers: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Answers' JSON objects, packed where that pays; what is packed does not begin with a brace."""
        return answers if self._with_dictionary is None else _pack_long(self._with_dictionary, answers)

    def unpack_answer(self, stored: bytes) -> bytes:
        """Of what `pack_answers` packed; raises zstandard.ZstdError when the bytes are damaged."""
        assert self._dictionary_expander is not None
        return self._dictionary_expander.decompress(stored)

    def unpack_answers(self, stored: list[bytes]) -> list[bytes]:
        """The same for many; raises ValueError, too, and does not tell which are damaged."""
        assert self._dictionary_expander is not None
        frames = self._dictionary_expander.multi_decompress_to_buffer([*stored])
        return [frames[number].tobytes() for number in range(len(stored))]

    def unpack_body(self, packed: int, body: bytes) -> bytes:
        if packed == PLAIN:
            return body
        if packed == PACKED:
            return self._expander.decompress(body)
        assert self._dictionary_expander is not None
        return self._dictionary_expander.decompress(body)


class DamagedError(Exception):
    """Bytes that cannot be unpacked; `position` tells which of those asked for."""

    def __init__(self, position: int, why: object) -> None:
        super().__init__(why)
        self.position = position


class Unpacker:
    """What a reader unpacks with: the dictionary may come after the reader."""

    def __init__(self, read_dictionary: Callable[[], bytes | None]) -> None:
        self._read_dictionary = read_dictionary
        self.packer = Packer(read_dictionary())

    def body(self, packed: int, body: bytes) -> bytes:
        """Raises zstandard.ZstdError when the bytes are damaged."""
        packer = self._with_dictionary() if packed == PACKED_WITH_DICTIONARY else self.packer
        return packer.unpack_body(packed, body)

    def answers(self, stored: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Answers as they were before `Packer.pack_answers`.  Raises DamagedError."""
        packed = {at: answer for at, answer in enumerate(stored) if answer is not None and answer[:1] != b"{"}
        if not packed:
            return stored
        packer = self._with_dictionary()
        unpacked = list(stored)
        try:
            plain = packer.unpack_answers(list(packed.values()))
        except (zstandard.ZstdError, ValueError):
            plain = [_unpacked(packer, at, answer) for at, answer in packed.items()]
        for at, answer in zip(packed, plain, strict=True):
            unpacked[at] = answer
        return unpacked

    def _with_dictionary(self) -> Packer:
        if self.packer.dictionary is None:
            self.packer = Packer(self._read_dictionary())
        return self.packer


def _unpacked(packer: Packer, position: int, answer: bytes) -> bytes:
    try:
        return packer.unpack_answer(answer)
    except zstandard.ZstdError as error:
        raise DamagedError(position, error) from None


def _pack_long(compressor: zstandard.ZstdCompressor, parts: Sequence[bytes | None]) -> list[bytes | None]:
    """Packs what is not short; the others stay the same objects.

    All in one call: compressing gives the interpreter's lock away, and with thousands of requests in flight it
    takes milliseconds to get it back.
    """
    long: list[bytes | bytearray | memoryview] = [
        part for part in parts if part is not None and len(part) >= SMALLEST_BYTES
    ]
    if not long:
        return list(parts)
    frames = iter(compressor.multi_compress_to_buffer(long))
    return [part if part is None or len(part) < SMALLEST_BYTES else next(frames).tobytes() for part in parts]
