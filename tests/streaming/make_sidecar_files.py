#!/usr/bin/env python3
"""Makes tests/data/sidecars/*.npz (other forms of toy_h264.npz, by numpy) and tests/data/broken/{npz,mp4} (deliberately broken files).

Run with numpy installed, from anywhere: tests/streaming/make_sidecar_files.py
Each broken folder gets a file EXPECTATIONS: name, tab, a part of the message that the file has to provoke.
"""

import io
import json
import pathlib
import struct
import zipfile

import numpy as np

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
TOY = np.load(DATA / "sidecars" / "toy_h264.npz")
VIDEO = (DATA / "datasets/toy_h264/videos/observation.images.front/chunk-000/file-000.mp4").read_bytes()


def arrays() -> dict:
    return {name: TOY[name] for name in TOY.files}


def manifest() -> dict:
    return json.loads(bytes(TOY["manifest_json"]))


def npz(contents: dict, save=np.savez_compressed) -> bytes:
    out = io.BytesIO()
    save(out, **contents)
    return out.getvalue()


def with_manifest(change) -> bytes:
    data = manifest()
    change(data)
    return npz({**arrays(), "manifest_json": np.array(json.dumps(data).encode())})


def with_array(name: str, change) -> bytes:
    data = arrays()
    data[name] = change(data[name].copy())
    return npz(data)


def without(name: str) -> bytes:
    return npz({key: value for key, value in arrays().items() if key != name})


def set_item(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def raw_member(name: str, content: bytes) -> bytes:
    """The toy archive with one member's raw bytes replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(DATA / "sidecars/toy_h264.npz") as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            target.writestr(info.filename, content if info.filename == name else source.read(info.filename))
    return out.getvalue()


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + data


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def forms() -> None:
    """What other writers may make of the same sidecar."""
    folder = DATA / "sidecars"
    (folder / "stored.npz").write_bytes(npz(arrays(), np.savez))
    text = np.frombuffer(bytes(TOY["manifest_json"]), np.uint8)
    types = {
        "sample_durations": "<f8",
        "sample_composition_offsets": ">i8",
        "sample_sizes": "<u2",
        "sample_offsets": ">u4",
        "sync_samples": "<u1",
    }
    other = {"manifest_json": text}
    for name, array in arrays().items():
        if name != "manifest_json":
            other[name] = array.astype(types.get(name.split("/")[1], array.dtype))
            assert np.array_equal(other[name], array), name
    other["0/sample_pts"] = TOY["0/sample_pts"].astype(">f8")
    (folder / "other_types.npz").write_bytes(npz(other))


def broken_npz() -> None:
    toy = (DATA / "sidecars/toy_h264.npz").read_bytes()
    end = toy.rindex(b"PK\x05\x06")
    directory = struct.unpack_from("<I", toy, end + 16)[0]
    local_pts = toy.index(b"0/sample_pts.npy")
    data_pts = local_pts + len("0/sample_pts.npy") + 20
    sizes = "{'descr': '<i8', 'fortran_order': False, 'shape': (%s,), }\n"
    objects = npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (43,), }\n")
    cases = {
        "empty.npz": (b"", "cut off"),
        "no_archive.npz": (b"not a zip archive, but long enough to hold an end record", "directory at its end is missing"),
        "cut.npz": (toy[: len(toy) // 2], "cut off or damaged"),
        "directory_outside.npz": (patched(toy, end + 16, b"\xff\xff\xff\x7f"), "leaves the file's"),
        "directory_short.npz": (patched(toy, end + 10, b"\xff\x7f"), "directory entry"),
        "method_unknown.npz": (patched(toy, directory + 10, b"\x0c\x00"), "compressed by method 12"),
        "encrypted.npz": (patched(toy, directory + 8, b"\x01\x00"), "is encrypted"),
        "size_lie.npz": (patched(toy, directory + 24, b"\xff\xff\xff\x7f"), "cannot hold so many"),
        "size_short.npz": (patched(toy, directory + 24, b"\x00\x01\x00\x00"), "manifest_json.npy"),
        "data_broken.npz": (patched(toy, data_pts + 20, b"\xff\xff\xff\xff\xff\xff"), "0/sample_pts.npy"),
        "manifest_missing.npz": (without("manifest_json"), "member manifest_json.npy is missing"),
        "manifest_no_json.npz": (npz({**arrays(), "manifest_json": np.array(b"{]")}), "manifest"),
        "manifest_objects.npz": (raw_member("manifest_json.npy", npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (), }\n")), "Python objects"),
        "version_2.npz": (with_manifest(lambda m: m.update(version=2)), "its version is 2, expected 3"),
        "schema_2.npz": (with_manifest(lambda m: m["sidecar"].update(schema_version=2)), "its schema is 2, expected 3"),
        "repo_id_missing.npz": (with_manifest(lambda m: m["sidecar"].pop("repo_id")), "lacks 'repo_id'"),
        "sources_fewer.npz": (with_manifest(lambda m: m["sidecar"]["source_files"].pop()), "lists 1 source files and 2 indexed ones"),
        "sources_other_size.npz": (with_manifest(lambda m: m["sidecar"]["source_files"][0].update(size=1)), "has 1 bytes as a source and 7929"),
        "path_outside.npz": (with_manifest(lambda m: m["files"][0].update(file_path="../secret.mp4")), "a path inside the dataset"),
        "file_size_negative.npz": (with_manifest(lambda m: m["files"][0].update(file_size=-1)), "a whole number, not negative"),
        "hex_broken.npz": (with_manifest(lambda m: m["files"][0]["mp4"].update(stsd_body="0x")), "hexadecimal digits"),
        "time_scale_0.npz": (with_manifest(lambda m: m["files"][0]["mp4"].update(timescale=0)), "its time scale is 0"),
        "array_missing.npz": (without("1/sample_sizes"), "member 1/sample_sizes.npy is missing"),
        "array_objects.npz": (raw_member("0/sample_sizes.npy", objects), "Python objects"),
        "array_records.npz": (raw_member("0/sample_sizes.npy", npy(b"{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (43,), }\n")), "array of records"),
        "array_complex.npz": (with_array("0/sample_sizes", lambda a: a.astype(np.complex128)), "'<c16' is not supported"),
        "array_2d.npz": (with_array("0/sample_sizes", lambda a: np.stack([a, a])), "one-dimensional"),
        "array_half.npz": (with_array("0/sample_sizes", lambda a: a + 0.5), "expected a whole number"),
        "array_shorter.npz": (with_array("0/sample_sizes", lambda a: a[:-1]), "43 and 42 samples"),
        "shape_lie.npz": (raw_member("0/sample_sizes.npy", npy((sizes % 10**19).encode(), bytes(344))), "overflows"),
        "shape_large.npz": (raw_member("0/sample_sizes.npy", npy((sizes % 44).encode(), bytes(344))), "its shape needs 352 bytes"),
        "header_broken.npz": (raw_member("0/sample_sizes.npy", npy(b"{'descr': '<i8', 'shape': (43,)")), "damaged npy header"),
        "header_long.npz": (raw_member("0/sample_sizes.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f"), "npy header has"),
        "header_version.npz": (raw_member("0/sample_sizes.npy", npy((sizes % 43).encode(), version=b"\x09\x00")), "npy version 9"),
        "header_magic.npz": (raw_member("0/sample_sizes.npy", b"NUMPY, but not quite"), "does not begin with"),
        "pts_nan.npz": (with_array("0/sample_pts", set_item(3, np.nan)), "sample 3"),
        "pts_shifted.npz": (with_array("0/sample_pts", set_item(3, 0.35)), "away from where durations"),
        "size_zero.npz": (with_array("0/sample_sizes", set_item(5, 0)), "sample 5 of 0 bytes"),
        "offset_outside.npz": (with_array("0/sample_offsets", set_item(7, 7929)), "is not in the file's 7929"),
        "offset_negative.npz": (with_array("0/sample_offsets", set_item(7, -1)), "at byte -1"),
        "duration_negative.npz": (with_array("0/sample_durations", set_item(42, -5)), "duration -5"),
        "composition_huge.npz": (with_array("0/sample_composition_offsets", set_item(slice(None), 2**40)), "composition offset"),
        "sync_descending.npz": (with_array("1/sync_samples", lambda a: a[::-1].copy()), "sync sample"),
        "sync_outside.npz": (with_array("1/sync_samples", set_item(-1, 43)), "sync sample 43"),
    }
    write("npz", cases)


def box(kind: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", 8 + len(payload)) + kind + payload


def find(kind: bytes, data: bytes = VIDEO) -> int:
    """Where the payload of the first box of that kind begins."""
    return data.index(kind) + 4


def renamed(kind: bytes) -> bytes:
    return patched(VIDEO, find(kind) - 4, b"free")


def broken_mp4() -> None:
    u32 = lambda value: struct.pack(">I", value)
    moov = VIDEO.index(b"moov") - 4
    moov_bytes = struct.unpack_from(">I", VIDEO, moov)[0]
    samples = find(b"stsz") + 8
    edit = find(b"elst") + 8
    cases = {
        "text.mp4": (b"version 1: this is no video\n", "is not an MP4 file"),
        "cut_in_moov.mp4": (VIDEO[: moov + moov_bytes // 2], "the file is cut"),
        "cut_in_mdat.mp4": (VIDEO[:-100], "the file is cut"),
        "moov_missing.mp4": (patched(VIDEO, moov + 4, b"free"), "has no 'moov' box"),
        "mdat_missing.mp4": (patched(VIDEO, find(b"mdat") - 4, b"free"), "has no 'mdat' box"),
        "box_size_impossible.mp4": (patched(VIDEO, moov, u32(4)), "impossible size"),
        "fragmented.mp4": (VIDEO[:moov] + box(b"moof", bytes(16)), "fragmented MP4"),
        "fragmented_mvex.mp4": (patched(VIDEO, find(b"udta") - 4, b"mvex"), "fragmented MP4"),
        "video_track_missing.mp4": (patched(VIDEO, find(b"vide") - 4, b"soun"), "no video track"),
        "tkhd_missing.mp4": (renamed(b"tkhd"), "'tkhd' is missing"),
        "mdhd_missing.mp4": (renamed(b"mdhd"), "'mdhd' is missing"),
        "stbl_missing.mp4": (renamed(b"stbl"), "'stbl' is missing"),
        "stsd_missing.mp4": (renamed(b"stsd"), "'stsd' is missing"),
        "stts_missing.mp4": (renamed(b"stts"), "'stts' is missing"),
        "stsz_missing.mp4": (renamed(b"stsz"), "'stsz' is missing"),
        "stsc_missing.mp4": (renamed(b"stsc"), "'stsc' is missing"),
        "chunk_offsets_missing.mp4": (renamed(b"stco"), "'stco' or 'co64'"),
        "time_scale_0.mp4": (patched(VIDEO, find(b"mdhd") + 12, u32(0)), "time scale is 0"),
        "samples_0.mp4": (patched(VIDEO, samples, u32(0)), "no samples"),
        "samples_many.mp4": (patched(VIDEO, samples, u32(0x7FFFFFFF)), "has room for"),
        "sample_empty.mp4": (patched(VIDEO, samples + 4, u32(0)), "sample 1 has 0 bytes"),
        "stts_disagrees.mp4": (patched(VIDEO, find(b"stts") + 8, u32(44)), "covers 44 samples"),
        "ctts_disagrees.mp4": (patched(VIDEO, find(b"ctts") + 8, u32(44)), "covers 44 samples"),
        "ctts_version.mp4": (patched(VIDEO, find(b"ctts"), b"\x02"), "version 2 is not known"),
        "stsc_empty.mp4": (patched(VIDEO, find(b"stsc") + 4, u32(0)), "hold 0 samples"),
        "stsc_beyond.mp4": (patched(VIDEO, find(b"stsc") + 8, u32(9)), "covers chunks 9"),
        "offset_outside.mp4": (patched(VIDEO, find(b"stco") + 8, u32(0x7FFFFFFF)), "the file is cut"),
        "stss_descending.mp4": (patched(VIDEO, find(b"stss") + 12, u32(1)), "names sample 1 after 1"),
        "edit_rate_2.mp4": (patched(VIDEO, edit + 8, u32(0x20000)), "unsupported edit list"),
        "edit_hides_all.mp4": (patched(VIDEO, edit + 4, u32(10**8)), "hides every frame"),
    }
    write("mp4", cases)


def write(folder: str, cases: dict) -> None:
    target = DATA / "broken" / folder
    target.mkdir(parents=True, exist_ok=True)
    for name, (content, _) in cases.items():
        (target / name).write_bytes(content)
    lines = [f"{name}\t{expectation}\n" for name, (_, expectation) in cases.items()]
    (target / "EXPECTATIONS").write_text("".join(lines))


if __name__ == "__main__":
    forms()
    broken_npz()
    broken_mp4()
