"""Sidecars travel: numpy reads ours, we read numpy's, and what we index is what LeRobot's builder indexed."""

import io
import json
import subprocess
import zipfile

import numpy as np
import pytest

from trainer import DATASETS, PROJECT

SIDECAR = PROJECT / "tests" / "data" / "sidecars" / "toy_h264.npz"
ARRAYS = {
    "sample_pts": "<f8",
    "sample_durations": "<i8",
    "sample_composition_offsets": "<i8",
    "sample_sizes": "<i8",
    "sample_offsets": "<i8",
    "sync_samples": "<i8",
}


def build(programs, output, dataset, *options) -> str:
    command = [programs / "lerobot-build-mp4-sidecar", "--repo-id=owner/dataset", f"--data-root={dataset}", f"--output={output}"]
    return subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout


def load(path) -> tuple[dict, dict]:
    """Manifest and arrays, without pickles."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    manifest = arrays.pop("manifest_json")
    assert manifest.shape == () and manifest.dtype.kind == "S"
    return json.loads(manifest.item()), arrays


def test_what_we_index_is_what_lerobot_indexed(programs, tmp_path):
    output = tmp_path / "toy.npz"
    assert "4 episodes, 2 files" in build(programs, output, DATASETS / "toy_h264")
    ours, our_arrays = load(output)
    theirs, their_arrays = load(SIDECAR)
    assert list(our_arrays) == list(their_arrays)
    for name, array in their_arrays.items():
        assert our_arrays[name].dtype == array.dtype and our_arrays[name].tobytes() == array.tobytes(), name
    assert json.dumps(ours["files"]) == json.dumps(theirs["files"])
    assert ours["version"] == theirs["version"] == 3
    assert list(ours["sidecar"]) == list(theirs["sidecar"])
    assert ours["sidecar"]["source_files"] == theirs["sidecar"]["source_files"]


@pytest.mark.parametrize("name", ["toy_h264", "toy_av1", "toy_split", "toy_types"])
def test_numpy_and_zipfile_find_nothing_wrong(programs, tmp_path, name):
    output = tmp_path / "a folder" / f"{name}.npz"
    build(programs, output, DATASETS / name, "--workers", "3")
    with zipfile.ZipFile(output) as archive:
        assert archive.testzip() is None
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    manifest, arrays = load(output)
    paths = [entry["file_path"] for entry in manifest["files"]]
    assert paths == sorted(paths) and len(paths) > 0
    for number, entry in enumerate(manifest["files"]):
        assert entry["file_size"] == (DATASETS / name / entry["file_path"]).stat().st_size
        columns = {array: arrays[f"{number}/{array}"] for array in ARRAYS}
        assert {array: column.dtype.str for array, column in columns.items()} == ARRAYS
        count = len(columns["sample_pts"])
        assert all(len(column) == count for array, column in columns.items() if array != "sync_samples")
        ends = columns["sample_offsets"] + columns["sample_sizes"]
        assert ends.max() <= entry["file_size"]
        assert (np.diff(columns["sync_samples"]) > 0).all()


def test_sample_times_are_ffprobes(programs, tmp_path):
    """Edit lists and B-frames: pts as ffprobe gives them, in decode order."""
    video = "videos/observation.images.front/chunk-000/file-000.mp4"
    root = tmp_path / "dataset"
    (root / video).parent.mkdir(parents=True)
    (root / "meta").symlink_to(DATASETS / "toy_h264" / "meta")
    wrist = "videos/observation.images.wrist"
    (root / wrist).symlink_to(DATASETS / "toy_h264" / wrist)
    coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "12", "-bf", "3", "-output_ts_offset", "0.5"]
    source = ["-f", "lavfi", "-i", "testsrc2=size=96x96:rate=10:duration=5"]
    subprocess.run(["ffmpeg", "-v", "error", *source, *coded, root / video], check=True)
    build(programs, tmp_path / "a.npz", root)
    manifest, arrays = load(tmp_path / "a.npz")
    probe = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "packet=pts_time,size,pos,flags", "-of", "json", root / video]
    packets = json.loads(subprocess.run(probe, check=True, capture_output=True, text=True).stdout)["packets"]
    assert manifest["files"][0]["file_path"] == video
    np.testing.assert_allclose(arrays["0/sample_pts"], [float(p["pts_time"]) for p in packets], atol=1e-6)
    assert arrays["0/sample_sizes"].tolist() == [int(p["size"]) for p in packets]
    assert arrays["0/sample_offsets"].tolist() == [int(p["pos"]) for p in packets]
    assert arrays["0/sync_samples"].tolist() == [i for i, p in enumerate(packets) if p["flags"].startswith("K")]


def test_the_same_archive_comes_out_of_numpys_writer(programs, tmp_path):
    """What we write goes through numpy.savez_compressed without a change of content."""
    build(programs, tmp_path / "a.npz", DATASETS / "toy_split")
    with np.load(tmp_path / "a.npz") as archive:
        contents = {name: archive[name] for name in archive.files}
    again = io.BytesIO()
    np.savez_compressed(again, **contents)
    with zipfile.ZipFile(tmp_path / "a.npz") as ours, zipfile.ZipFile(again) as theirs:
        assert ours.namelist() == theirs.namelist()
        for name in ours.namelist():
            assert ours.read(name) == theirs.read(name), name
