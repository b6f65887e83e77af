"""sidecar-build: indexing 300 video files of 3,000 frames (hard links to those of the camera dataset).

Ours (lerobot-build-mp4-sidecar) against what LeRobot 0.6.1 can tell of a video: PyAV's look at the stream's header, as LeRobot takes
when it writes a dataset; torchcodec's decoder as its loaders open one for every file, again the header alone; and that decoder with an
index of every frame, which is what a sidecar holds.
"""

import itertools
import os
import pathlib
import re
import shutil
import sys

import camera_dataset
import loaders
import numpy
from measure import PROGRAMS, SCRATCH, Row, Verdict, watch

EPISODES = 100
OUR_WORKERS = (1, 2, 8)
PEERS = {"header": "PyAV, header", "approximate": "torchcodec, header", "exact": "torchcodec, every frame"}


def many_files(cameras: pathlib.Path) -> pathlib.Path:
    """A dataset of one episode a file."""
    root = SCRATCH / "many-videos"
    shutil.rmtree(root, ignore_errors=True)
    frames = camera_dataset.EPISODES * camera_dataset.LENGTH
    vectors = camera_dataset.made_up_vectors(numpy.random.default_rng(1), frames)
    camera_dataset.write_metadata(root, numpy.full(EPISODES, frames), 1, vectors)
    for video, episode in itertools.product(loaders.videos(cameras), range(EPISODES)):
        link = root / video.relative_to(cameras).with_name(f"file-{episode:03d}.mp4")
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(video, link)
    return root


def ours(root, workers: int) -> dict[str, float]:
    output = SCRATCH / "many-videos.npz"
    output.unlink(missing_ok=True)
    run = watch(
        [
            PROGRAMS / "lerobot-build-mp4-sidecar",
            "--repo-id=bench/many",
            f"--data-root={root}",
            f"--output={output}",
            f"--workers={workers}",
        ],
        memory_every_s=0.05,
    )
    if not output.exists():
        raise RuntimeError(f"{output}: was not written")
    files = EPISODES * len(camera_dataset.CAMERAS)
    size = output.stat().st_size
    output.unlink()
    return {"files_per_s": files / run.seconds, "seconds": run.seconds, "pss_mib": run.peak_pss_mib, "sidecar_mib": size / (1 << 20)}


def theirs(root, how: str) -> dict[str, float]:
    script = pathlib.Path(__file__).parent / "peers" / "probe_videos.py"
    run = watch([sys.executable, script, root, how])
    files, seconds = re.search(r"(\d+) files in ([\d.]+) s", run.lines[-1][1]).groups()
    # Without the imports: one process could look at any number of files.
    return {"files_per_s": int(files) / float(seconds), "seconds": float(seconds), "pss_mib": run.peak_pss_mib}


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    root = many_files(loaders.cameras())
    our_rows = {workers: Row(f"ours, {workers} workers") for workers in OUR_WORKERS}
    their_rows = {how: Row(name) for how, name in PEERS.items()}
    for _ in range(rounds):
        for workers, row in our_rows.items():
            row.add(**ours(root, workers))
        for how, row in their_rows.items():
            row.add(**theirs(root, how))
    shutil.rmtree(root)

    best = max(our_rows.values(), key=lambda row: row.median("files_per_s"))

    def against(name: str, peer: Row, goal: str) -> Verdict:
        return Verdict(name, "files/s", best.median("files_per_s"), peer.median("files_per_s"), peer.name, goal)

    exact = their_rows["exact"]
    return [*our_rows.values(), *their_rows.values()], [
        against("same_content", exact, ">= 2"),
        against("header_pyav", their_rows["header"], ""),
        against("header_torchcodec", their_rows["approximate"], ""),
        Verdict("memory", "MiB", best.median("pss_mib"), exact.median("pss_mib"), exact.name, "<= 0.25"),
    ]
