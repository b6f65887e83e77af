"""plan-scale: planning a stream by the size of the dataset, up to 1 million episodes and 200 million frames of made-up metadata.

Ours (plan_scale: reading the metadata, starting, resuming at step 1,000,000 and in the middle of an epoch) against LeRobot reading the
same metadata and resuming its map-style sampler in the middle of an epoch, which is the one that can.
"""

import json
import pathlib
import shutil
import sys

import camera_dataset
import numpy
from measure import PROGRAMS, SCRATCH, Row, Verdict, watch

SIZES = [10_000, 100_000, 1_000_000]
MEAN_LENGTH = 200
EPISODES_PER_FILE = 40
LANES, BATCH, STEPS = 4, 8, 1_000_000


def made_up(episodes: int) -> pathlib.Path:
    root = SCRATCH / f"planned-{episodes}"
    shutil.rmtree(root, ignore_errors=True)
    random = numpy.random.default_rng(episodes)
    lengths = random.integers(MEAN_LENGTH // 2, MEAN_LENGTH * 3 // 2 + 1, size=episodes)
    camera_dataset.write_metadata(root, lengths, EPISODES_PER_FILE, camera_dataset.made_up_vectors(random, 1000))
    return root


def last_json(run) -> dict[str, float]:
    return json.loads(run.lines[-1][1])


def ours(root) -> dict[str, float]:
    return last_json(watch([PROGRAMS / "plan_scale", root, LANES, BATCH, STEPS]))


def theirs(root) -> dict[str, float]:
    script = pathlib.Path(__file__).parent / "peers" / "plan.py"
    run = watch([sys.executable, script, root, BATCH])
    return last_json(run)


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    roots = {episodes: made_up(episodes) for episodes in SIZES}
    our_rows = {episodes: Row(f"ours, {episodes} episodes") for episodes in SIZES}
    their_rows = {episodes: Row(f"LeRobot, {episodes} episodes") for episodes in SIZES}
    for _ in range(rounds):
        for episodes, root in roots.items():
            our_rows[episodes].add(**ours(root))
            their_rows[episodes].add(**theirs(root))
    for root in roots.values():
        shutil.rmtree(root)

    largest, smallest = our_rows[SIZES[-1]], our_rows[SIZES[0]]
    peer = their_rows[SIZES[-1]]

    def against_peer(name: str, unit: str, quantity: str, goal: str) -> Verdict:
        return Verdict(name, unit, largest.median(quantity), peer.median(quantity), peer.name, goal)

    def growth(name: str, quantity: str, scale: float = 1e6) -> Verdict:
        """An episode's part at the largest size against that at the smallest."""
        at_largest, at_smallest = (row.median(quantity) * scale / size for row, size in ((largest, SIZES[-1]), (smallest, SIZES[0])))
        return Verdict(name, "us/episode", at_largest, at_smallest, smallest.name, "")

    return [*our_rows.values(), *their_rows.values()], [
        against_peer("open", "s", "open_s", "<= 0.5"),
        against_peer("resume_mid", "s", "resume_mid_s", "ours <= 5 s"),
        against_peer("memory", "bytes/episode", "peak_bytes", "<= 0.25"),
        Verdict("start", "s", largest.median("start_s"), largest.median("open_s"), "ours, reading the metadata", "ours <= 2 s"),
        Verdict("resume", "s", largest.median("resume_s"), largest.median("start_s"), "ours, starting", "ours <= 5 s"),
        growth("open_growth", "open_s"),
        growth("start_growth", "start_s"),
    ]
