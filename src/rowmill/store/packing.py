"""Compression of what the run file keeps: chunks of input, and raw replies with a shared dictionary.

Replies of one server are alike, so the first ones serve as the dictionary of all: it takes them to a tenth or a fifth.
"""

from __future__ import annotations

import zstandard

PLAIN, PACKED, PACKED_WITH_DICTIONARY = 0, 1, 2
SMALLEST_BYTES = 64
DICTIONARY_BYTES = 16_384
LEVEL = 1  # of replies, which are small: higher levels gain a few per cent and cost twice the time


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
            shared = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
            shared.precompute_compress(level=LEVEL)
            self._with_dictionary = zstandard.ZstdCompressor(level=LEVEL, dict_data=shared)
            self._dictionary_expander = zstandard.ZstdDecompressor(dict_data=shared)

    def pack_chunk(self, payload: bytes) -> bytes:
        return self._chunks.compress(payload)

    def unpack_chunk(self, packed: bytes) -> bytes:
        """Raises zstandard.ZstdError when the bytes are damaged."""
        return self._expander.decompress(packed)

    def pack_body(self, body: bytes) -> tuple[int, bytes]:
        """How it is packed, and the bytes."""
        if len(body) < SMALLEST_BYTES:
            return PLAIN, body
        if self._with_dictionary is not None:
            return PACKED_WITH_DICTIONARY, self._with_dictionary.compress(body)
        return PACKED, self._plain.compress(body)

    def pack_answer(self, answer: bytes) -> bytes:
        """An answer's JSON object, packed where that pays; what is packed does not begin with a brace."""
        if self._with_dictionary is None or len(answer) < SMALLEST_BYTES:
            return answer
        return self._with_dictionary.compress(answer)

    def unpack_answer(self, stored: bytes) -> bytes:
        """Of what `pack_answer` packed; raises zstandard.ZstdError when the bytes are damaged."""
        assert self._dictionary_expander is not None
        return self._dictionary_expander.decompress(stored)

    def unpack_body(self, packed: int, body: bytes) -> bytes:
        if packed == PLAIN:
            return body
        if packed == PACKED:
            return self._expander.decompress(body)
        assert self._dictionary_expander is not None
        return self._dictionary_expander.decompress(body)
