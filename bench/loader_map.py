"""loader-map: random frames of three 640x480 AV1 cameras and 100 actions, in batches of 8.

Ours (lerobot-train --data_only), LeRobot's map-style loader with torchcodec, and the decode limit: the same kind of random frames
through libavcodec on two threads and nothing else.
"""

import json
import pathlib
import sys

import camera_dataset
from measure import PROGRAMS, SCRATCH, Row, Verdict, Watched, watch

BATCH = 8
CHUNK = 100
BATCHES = 100
# Batches that caches and read-ahead may still serve, before the clock of throughput starts.
WARM_UP = 20


def samples_per_s(warm_at: float, done_at: float) -> float:
    return (BATCHES - WARM_UP) * BATCH / (done_at - warm_at)


def ours(root, workers: int) -> dict[str, float]:
    def run(batches: int, report_every: int) -> Watched:
        return watch(
            [
                PROGRAMS / "lerobot-train",
                "--data_only=true",
                "--dataset.repo_id=bench/cameras",
                f"--dataset.root={root}",
                "--policy.type=act",
                "--policy.device=cpu",
                "--policy.push_to_hub=false",
                "--policy.pretrained_backbone_weights=null",
                f"--policy.chunk_size={CHUNK}",
                f"--policy.n_action_steps={CHUNK}",
                f"--batch_size={BATCH}",
                f"--num_workers={workers}",
                f"--steps={batches}",
                f"--log_freq={report_every}",
            ]
        )

    # A run of one batch says when it came; the long one reports every WARM_UP batches only, so as not to pay for reports.
    [first] = run(1, 1).times(r"\bstep:1 ")
    long = run(BATCHES, WARM_UP)
    reports = long.times(r"\bstep:\d+ ")
    if len(reports) != BATCHES // WARM_UP:
        raise RuntimeError(f"expected {BATCHES // WARM_UP} reports, saw {len(reports)}")
    return {"samples_per_s": samples_per_s(reports[0], reports[-1]), "first_batch_s": first, "pss_mib": long.peak_pss_mib}


def theirs(root, workers: int) -> dict[str, float]:
    script = pathlib.Path(__file__).parent / "peers" / "map_loader.py"
    run = watch([sys.executable, script, root, workers, BATCHES, BATCH, CHUNK])
    batches = run.times("^batch ")
    if len(batches) != BATCHES:
        raise RuntimeError(f"expected {BATCHES} batches, saw {len(batches)}")
    return {
        "samples_per_s": samples_per_s(batches[WARM_UP - 1], batches[-1]),
        "first_batch_s": batches[0],
        "pss_mib": run.peak_pss_mib,
    }


def limit(root, round_number: int) -> dict[str, float]:
    files = [root / "videos" / camera / "chunk-000" / "file-000.mp4" for camera in camera_dataset.CAMERAS]
    run = watch([PROGRAMS / "decode_limit", 2, (BATCHES - WARM_UP) * BATCH, round_number, *files])
    return {"samples_per_s": json.loads(run.lines[-1][1])["samples_per_s"]}


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    root = camera_dataset.make(SCRATCH / "cameras")
    our_rows = {workers: Row(f"ours, {workers} decode threads") for workers in (2, 4)}
    their_rows = {workers: Row(f"LeRobot, {workers} workers") for workers in (0, 2, 4)}
    limit_row = Row("decode limit, 2 threads")
    for round_number in range(rounds):
        limit_row.add(**limit(root, round_number))
        for workers, row in our_rows.items():
            row.add(**ours(root, workers))
        for workers, row in their_rows.items():
            row.add(**theirs(root, workers))

    def fastest(rows):
        return max(rows.values(), key=lambda row: row.median("samples_per_s"))

    best, peer = fastest(our_rows), fastest(their_rows)
    quickest = min(their_rows.values(), key=lambda row: row.median("first_batch_s"))
    return [*our_rows.values(), *their_rows.values(), limit_row], [
        Verdict("limit", "samples/s", best.median("samples_per_s"), limit_row.median("samples_per_s"), limit_row.name, ">= 0.85"),
        Verdict("throughput", "samples/s", best.median("samples_per_s"), peer.median("samples_per_s"), peer.name, ">= 2.2"),
        Verdict("first_batch", "s", best.median("first_batch_s"), quickest.median("first_batch_s"), quickest.name, "ours <= 0.6 s"),
        Verdict("memory", "MiB", best.median("pss_mib"), peer.median("pss_mib"), peer.name, "<= 0.25"),
    ]
