"""How a loader of the camera dataset is run and clocked: ours, LeRobot's, and the decode limit.

Random frames of three 640x480 AV1 cameras and 100 actions, in batches of 8. The clock of throughput starts after WARM_UP batches
and stops at batch BATCHES.
"""

import json
import pathlib
import shutil
import sys

import camera_dataset
import trainers
from measure import PROGRAMS, SCRATCH, Row, Watched, watch

BATCH = 8
CHUNK = 100
BATCHES = 100
# Batches that caches and read-ahead may still serve, before the clock of throughput starts.
WARM_UP = 20


def cameras() -> pathlib.Path:
    """The dataset's root; made when it is not there."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    return camera_dataset.make(SCRATCH / "cameras")


def samples_per_s(warm_at: float, done_at: float) -> float:
    return (BATCHES - WARM_UP) * BATCH / (done_at - warm_at)


def fastest(rows: dict[int, Row]) -> Row:
    return max(rows.values(), key=lambda row: row.median("samples_per_s"))


def quickest_start(rows: dict[int, Row]) -> Row:
    return min(rows.values(), key=lambda row: row.median("first_batch_s"))


def read(
    root, workers: int, *flags: str, batches: int, report_every: int, repo_id: str = "bench/cameras", environment: dict | None = None
) -> tuple[Watched, list[dict]]:
    """Draws batches with lerobot-train --data_only. Also returns its reports, one every `report_every` batches and one at the end."""
    output = SCRATCH / "loader-ours"
    shutil.rmtree(output, ignore_errors=True)
    run = watch(
        [
            *trainers.OURS,
            *trainers.ACT_ON_CPU,
            "--data_only=true",
            f"--dataset.repo_id={repo_id}",
            f"--dataset.root={root}",
            f"--policy.chunk_size={CHUNK}",
            f"--policy.n_action_steps={CHUNK}",
            f"--batch_size={BATCH}",
            f"--num_workers={workers}",
            f"--steps={batches}",
            f"--log_freq={report_every}",
            f"--output_dir={output}",
            *flags,
        ],
        environment=environment,
    )
    reports = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    expected = -(-batches // report_every)
    if len(reports) != expected or len(report_times(run)) != expected:
        raise RuntimeError(f"expected {expected} reports, saw {len(reports)}")
    return run, reports


def report_times(run: Watched) -> list[float]:
    return run.times(r"\bstep:\d+ ")


def first_batch_s(root, workers: int, *flags: str, environment: dict | None = None) -> float:
    """Seconds from the process's start until a run of one batch says that it is there."""
    run, _ = read(root, workers, *flags, batches=1, report_every=1, environment=environment)
    return report_times(run)[0]


def ours(root, workers: int, *flags: str, environment: dict | None = None) -> tuple[dict[str, float], list[dict]]:
    """Quantities of our loader, and the reports of the long run."""
    first = first_batch_s(root, workers, *flags, environment=environment)
    # Few reports, so as not to pay for them.
    run, reports = read(root, workers, *flags, batches=BATCHES, report_every=WARM_UP, environment=environment)
    times = report_times(run)
    return {"samples_per_s": samples_per_s(times[0], times[-1]), "first_batch_s": first, "pss_mib": run.peak_pss_mib}, reports


def peer(script: str, root, workers: int) -> dict[str, float]:
    """Quantities of a loader under peers/ that prints a line as each batch arrives."""
    path = pathlib.Path(__file__).parent / "peers" / script
    run = watch([sys.executable, path, root, workers, BATCHES, BATCH, CHUNK])
    batches = run.times("^batch ")
    if len(batches) != BATCHES:
        raise RuntimeError(f"{script}: expected {BATCHES} batches, saw {len(batches)}")
    return {
        "samples_per_s": samples_per_s(batches[WARM_UP - 1], batches[-1]),
        "first_batch_s": batches[0],
        "pss_mib": run.peak_pss_mib,
    }


def videos(root: pathlib.Path) -> list[pathlib.Path]:
    return [root / "videos" / camera / "chunk-000" / "file-000.mp4" for camera in camera_dataset.CAMERAS]


def limit(root: pathlib.Path, round_number: int) -> dict[str, float]:
    run = watch([PROGRAMS / "decode_limit", 2, (BATCHES - WARM_UP) * BATCH, round_number, *videos(root)])
    return {"samples_per_s": json.loads(run.lines[-1][1])["samples_per_s"]}
