"""loader-streaming: the frames of loader-map, but streamed: pool 32, which holds all of the dataset's 20 episodes.

Ours (lerobot-train --data_only --dataset.streaming=true), LeRobot's map-style loader and its StreamingLeRobotDataset, and the decode
limit. The latter peer decodes in the order of the file, where a frame between keyframes costs a tenth of one that is sought, and
shuffles 1,000 decoded frames in every worker: its frames cost less than random ones, its start and its memory more. What the limit of
random frames leaves to gain against it is a line of its own. More than two of its workers would find fewer frames than they shuffle.

Also: memory over many epochs with a pool that holds half of the episodes, so that they come and go.
"""

import json
import pathlib
import shutil
import statistics

import loaders
import pyarrow.parquet
from measure import PROJECT, SCRATCH, Row, Verdict

STREAMING = ["--dataset.streaming=true", "--dataset.streaming_episode_pool_size=32"]
EPOCHS = 20
MIB = 1 << 20
# What the process may take besides the compressed bytes of its pool.
ALLOWANCE_MIB = 200


def fresh_home() -> dict[str, str]:
    """An environment with an empty cache of sidecars."""
    home = SCRATCH / "streaming-home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return {"HF_LEROBOT_HOME": str(home)}


def ours(root, workers: int) -> dict[str, float]:
    environment = fresh_home()
    built = loaders.first_batch_s(root, workers, *STREAMING, environment=environment)
    quantities, reports = loaders.ours(root, workers, *STREAMING, environment=environment)
    pool_mib = max(report["resident_bytes"] for report in reports) / MIB
    return {
        **quantities,
        "first_batch_built_s": built,
        "pool_mib": pool_mib,
        "besides_pool_mib": quantities["pss_mib"] - pool_mib,
    }


def with_data_files(root: pathlib.Path, count: int) -> pathlib.Path:
    """The same dataset with its rows in `count` data files of whole episodes: one for each worker of the peer."""
    split = SCRATCH / f"cameras-in-{count}-files"
    shutil.rmtree(split, ignore_errors=True)
    (split / "data/chunk-000").mkdir(parents=True)
    for part in ("meta", "videos"):
        (split / part).symlink_to(root / part)
    rows = pyarrow.parquet.read_table(root / "data/chunk-000/file-000.parquet")
    episodes = json.loads((root / "meta/info.json").read_text())["total_episodes"]
    length = len(rows) // episodes
    for file in range(count):
        begin, end = (number * episodes // count * length for number in (file, file + 1))
        pyarrow.parquet.write_table(rows.slice(begin, end - begin), split / f"data/chunk-000/file-{file:03d}.parquet")
    return split


def pss_over_epochs(name: str, root, *, frames: int, pool: int, repo_id: str, flags: list[str]) -> Row:
    epoch = frames // loaders.BATCH
    _, reports = loaders.read(
        root,
        1,
        "--dataset.streaming=true",
        f"--dataset.streaming_episode_pool_size={pool}",
        "--dataset.streaming_prefetch_episodes=1",
        *flags,
        batches=EPOCHS * epoch,
        report_every=epoch,
        repo_id=repo_id,
        environment=fresh_home(),
    )
    row = Row(name)
    pss = [report["pss_bytes"] / MIB for report in reports]
    # An epoch ends with more or fewer episodes of the next one in memory: halves of the run tell more than single epochs.
    row.add(
        pss_epoch_1_mib=pss[0],
        pss_last_epoch_mib=pss[-1],
        pss_first_half_mib=statistics.mean(pss[: EPOCHS // 2]),
        pss_second_half_mib=statistics.mean(pss[EPOCHS // 2 :]),
    )
    return row


def memory_rows(root) -> list[Row]:
    """Few frames with much payload, and many frames with little."""
    pusht = PROJECT / "data" / "pusht_sim"
    pusht_frames = json.loads((pusht / "meta/info.json").read_text())["total_frames"]
    return [
        pss_over_epochs(
            f"ours, {EPOCHS} epochs of 2 episodes, pool 1",
            root,
            frames=2 * 150,
            pool=1,
            repo_id="bench/cameras",
            flags=["--dataset.episodes=[0, 1]"],
        ),
        pss_over_epochs(
            f"ours, {EPOCHS} epochs of pusht_sim, pool 12", pusht, frames=pusht_frames, pool=12, repo_id="lerobot/pusht_sim", flags=[]
        ),
    ]


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    root = loaders.cameras()
    our_rows = {workers: Row(f"ours, {workers} workers") for workers in (0, 1, 2, 4)}
    map_rows = {workers: Row(f"LeRobot map-style, {workers} workers") for workers in (0, 2, 4)}
    stream_rows = {workers: Row(f"LeRobot streaming, {workers} workers") for workers in (0, 2)}
    stream_roots = {workers: with_data_files(root, max(1, workers)) for workers in stream_rows}
    limit_row = Row("decode limit, 2 threads")
    for round_number in range(rounds):
        limit_row.add(**loaders.limit(root, round_number))
        for workers, row in our_rows.items():
            row.add(**ours(root, workers))
        for workers, row in map_rows.items():
            row.add(**loaders.peer("map_loader.py", root, workers))
        for workers, row in stream_rows.items():
            row.add(**loaders.peer("streaming_loader.py", stream_roots[workers], workers))
    memory = memory_rows(root)

    best = loaders.fastest(our_rows)
    best_map, best_stream = loaders.fastest(map_rows), loaders.fastest(stream_rows)
    peer = max(best_map, best_stream, key=lambda row: row.median("samples_per_s"))
    slowest_start = max(our_rows.values(), key=lambda row: row.median("first_batch_s"))
    slowest_build = max(our_rows.values(), key=lambda row: row.median("first_batch_built_s"))
    largest = max(our_rows.values(), key=lambda row: row.median("besides_pool_mib"))
    steepest = max(memory, key=lambda row: row.median("pss_second_half_mib") / row.median("pss_first_half_mib"))
    quickest = min((*map_rows.values(), *stream_rows.values()), key=lambda row: row.median("first_batch_s"))

    def against(name, other: Row, goal: str) -> Verdict:
        return Verdict(name, "samples/s", best.median("samples_per_s"), other.median("samples_per_s"), other.name, goal)

    def start(name, row: Row, quantity: str, goal: str) -> Verdict:
        return Verdict(name, "s", row.median(quantity), quickest.median("first_batch_s"), quickest.name, goal)

    return [*our_rows.values(), *map_rows.values(), *stream_rows.values(), limit_row, *memory], [
        against("limit", limit_row, ">= 0.85"),
        against("throughput", peer, ">= 2.2"),
        against("throughput_map", best_map, ""),
        against("throughput_stream", best_stream, ""),
        Verdict(
            "limit_to_stream",
            "samples/s",
            limit_row.median("samples_per_s"),
            best_stream.median("samples_per_s"),
            f"{best_stream.name}; ours is the limit",
            "",
        ),
        start("first_batch", slowest_start, "first_batch_s", f"{slowest_start.name} <= 0.6 s"),
        start("first_batch_built", slowest_build, "first_batch_built_s", f"{slowest_build.name} <= 1.2 s"),
        Verdict("memory_besides_pool", "MiB", largest.median("besides_pool_mib"), ALLOWANCE_MIB, f"allowance of {largest.name}", "<= 1"),
        Verdict("memory", "MiB", best.median("pss_mib"), peer.median("pss_mib"), peer.name, ""),
        Verdict(
            "memory_over_epochs",
            "MiB",
            steepest.median("pss_second_half_mib"),
            steepest.median("pss_first_half_mib"),
            f"first half of {steepest.name}",
            "<= 1.03",
        ),
    ]
