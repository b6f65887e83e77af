#!/usr/bin/env python3
"""Makes tests/data/broken/index from a whole mapped index.

  tests/streaming/make_broken_indexes.py INDEX     INDEX: what a streamed run over tests/data/datasets/toy_h264 left in
                                                   $HF_LEROBOT_HOME/streaming-indexes
Offsets are those of src/lerobot/streaming/index_format.h; a change of the format there needs a new version and new files here.
"""

import pathlib
import struct
import sys
import zlib

FOOTER = 168
RECORD = 224


def main() -> None:
    good = pathlib.Path(sys.argv[1]).read_bytes()
    footer = len(good) - FOOTER
    records = struct.unpack_from("<Q", good, footer + 24)[0]

    def patched(at: int, value: bytes) -> bytes:
        return good[:at] + value + good[at + len(value) :]

    def with_footer(at: int, value: bytes) -> bytes:
        """A footer with a right checksum, so that what it says is looked at."""
        data = bytearray(patched(footer + at, value))
        data[footer + 12 : footer + 16] = bytes(4)
        data[footer + 12 : footer + 16] = struct.pack("<I", zlib.crc32(data[footer:]))
        return bytes(data)

    def with_record(at: int, value: bytes) -> bytes:
        data = bytearray(patched(records + at, value))
        data[records : records + 4] = struct.pack("<I", zlib.crc32(data[records + 4 : records + RECORD]))
        return bytes(data)

    u64 = lambda value: struct.pack("<Q", value)
    cases = {
        "empty.bin": (b"", "it is cut"),
        "cut.bin": (good[:-1], "its end is not that of an index"),
        "magic.bin": (patched(footer, b"LRIDX001"), "its end is not that of an index"),
        "version.bin": (with_footer(8, b"\x63"), "another version"),
        "footer_flipped.bin": (patched(footer + 20, b"\x55"), "its footer is not what was written"),
        "shortened_inside.bin": (good[64:], "its footer is not what was written"),
        "records_outside.bin": (with_footer(24, u64(2**60)), "its records are not where they should be"),
        "records_many.bin": (with_footer(32, u64(2**31)), "its records are not where they should be"),
        "record_flipped.bin": (patched(records + 60, b"\x55"), "a record is not what was written"),
        "path_outside.bin": (with_record(24, u64(2**63)), "a video's path is not what was written"),
        "data_outside.bin": (with_record(16, u64(2**63)), "samples lie outside the file"),
        "samples_many.bin": (with_record(64, u64(2**61)), "a record is impossible"),
        "samples_none.bin": (with_record(64, u64(0)), "a record is impossible"),
        "column_outside.bin": (with_record(144 + 2 * 16, u64(2**62)), "a column lies outside"),
        "column_type.bin": (with_record(144 + 8, b"\x09"), "a column lies outside"),
        "samples_flipped.bin": (patched(11, b"\x55"), "the samples of a video are not what was written"),
    }
    target = pathlib.Path(__file__).resolve().parents[1] / "data/broken/index"
    target.mkdir(parents=True, exist_ok=True)
    for name, (content, _) in cases.items():
        (target / name).write_bytes(content)
    (target / "EXPECTATIONS").write_text("".join(f"{name}\t{text}\n" for name, (_, text) in cases.items()))


if __name__ == "__main__":
    main()
