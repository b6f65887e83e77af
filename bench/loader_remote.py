"""loader-remote: the camera dataset behind a server with 30 ms of latency and 200 Mbit/s a connection, against the same stream from
the local folder, which cannot wait for a network. LeRobot has no reader of plain HTTP to compare with.

Two cases: a pool that holds all 20 episodes, so that each is fetched once, and one of 4 with 2 fetched ahead, so that episodes come
and go. An episode's own bytes are its coded frames and its part of the data file.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import camera_dataset
import loaders
from loader_streaming import MIB, fresh_home
from measure import Row, Verdict

LATENCY_MS = 30
MBIT = 200
FRAMES_PER_EPOCH = camera_dataset.EPISODES * camera_dataset.LENGTH
BATCHES_PER_EPOCH = FRAMES_PER_EPOCH // loaders.BATCH
REPORT_EVERY = BATCHES_PER_EPOCH // 2


@dataclasses.dataclass
class Case:
    name: str
    workers: int
    epochs: int
    keeps_all: bool
    flags: list[str]


CASES = [
    Case("all resident, 4 workers", 4, 2, True, ["--dataset.streaming_episode_pool_size=32"]),
    Case("pool 4, 1 worker", 1, 3, False, ["--dataset.streaming_episode_pool_size=4", "--dataset.streaming_prefetch_episodes=2"]),
]


@contextlib.contextmanager
def range_server(folder: pathlib.Path) -> Iterator[str]:
    """Serves the folder; yields its address."""
    script = pathlib.Path(__file__).parent / "range_server.py"
    server = subprocess.Popen(
        [sys.executable, script, folder, "--latency-ms", str(LATENCY_MS), "--mbit", str(MBIT)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def served(address: str, *, reset: bool = False) -> dict:
    with urllib.request.urlopen(f"{address}/stats{'?reset' if reset else ''}") as answer:
        return json.load(answer)


def own_bytes(root: pathlib.Path) -> int:
    """The coded frames of all videos and the data files."""
    frames = 0
    for video in loaders.videos(root):
        command = ["ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "packet=size", "-of", "csv=p=0", video]
        sizes = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        frames += sum(int(line.rstrip(",")) for line in sizes.split())
    return frames + sum(file.stat().st_size for file in root.glob("data/*/*.parquet"))


def run(root, case: Case, environment: dict) -> tuple[dict[str, float], list[dict]]:
    _, reports = loaders.read(
        root,
        case.workers,
        "--dataset.streaming=true",
        *case.flags,
        batches=case.epochs * BATCHES_PER_EPOCH,
        report_every=REPORT_EVERY,
        environment=environment,
    )
    last = reports[-1]
    return {
        "samples_per_s": last["samples_per_s"],
        "first_batch_s": last["first_batch_s"],
        **{f"wait_{percentile}_s": last[f"wait_{percentile}_s"] for percentile in ("p50", "p95", "p99")},
        "pss_mib": last["pss_bytes"] / MIB,
    }, reports


def epoch_bytes(case: Case, reports: list[dict]) -> float:
    """Bytes that were fetched for one epoch."""
    if case.keeps_all:
        return reports[-1]["bytes_read"]
    # From the middle of the first epoch to about the middle of the last: there the read-ahead is complete, one episode more or less.
    first, last = reports[0], reports[2 * (case.epochs - 1)]
    return (last["bytes_read"] - first["bytes_read"]) / (last["samples"] - first["samples"]) * FRAMES_PER_EPOCH


def remote(address: str, case: Case, environment: dict, episodes_bytes: int) -> dict[str, float]:
    served(address, reset=True)
    quantities, reports = run(f"{address}/", case, environment)
    sent = served(address)
    payload = sum(amount for path, amount in sent["paths"].items() if path.startswith(("/data/", "/videos/")))
    return {
        **quantities,
        "requests": sent["requests"],
        "connections": sent["connections"],
        "server_sent_mib": payload / MIB,
        "reported_read_mib": reports[-1]["bytes_read"] / MIB,
        "fetched_of_own": epoch_bytes(case, reports) / episodes_bytes,
    }


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    root = loaders.cameras()
    episodes_bytes = own_bytes(root)
    local_rows = {case.name: Row(f"local, {case.name}") for case in CASES}
    remote_rows = {case.name: Row(f"remote, {case.name}") for case in CASES}
    with range_server(root) as address:
        environment = fresh_home()
        for case in CASES:
            remote_rows[case.name].add(
                first_batch_built_s=loaders.first_batch_s(
                    f"{address}/", case.workers, "--dataset.streaming=true", *case.flags, environment=fresh_home()
                )
            )
        for _ in range(rounds):
            for case in CASES:
                local_rows[case.name].add(**run(root, case, environment)[0])
                remote_rows[case.name].add(**remote(address, case, environment, episodes_bytes))

    verdicts = []
    for case in CASES:
        local, distant = local_rows[case.name], remote_rows[case.name]
        label = case.name.replace(", ", "_").replace(" ", "_")

        def against_local(name, unit, quantity, goal):
            return Verdict(f"{name}.{label}", unit, distant.median(quantity), local.median(quantity), local.name, goal)

        verdicts += [
            against_local("throughput", "samples/s", "samples_per_s", ">= 0.95"),
            against_local("wait_p95", "s", "wait_p95_s", "<= 1.25"),
            against_local("wait_p99", "s", "wait_p99_s", "<= 1.25"),
            against_local("first_batch", "s", "first_batch_s", ""),
            Verdict(f"bytes.{label}", "own bytes", distant.median("fetched_of_own"), 1.0, "the episodes' own bytes", "<= 1.12"),
        ]
    return [row for case in CASES for row in (local_rows[case.name], remote_rows[case.name])], verdicts
