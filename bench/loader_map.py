"""loader-map: random frames of three 640x480 AV1 cameras and 100 actions, in batches of 8.

Ours (lerobot-train --data_only), LeRobot's map-style loader with torchcodec, and the decode limit: the same kind of random frames
through libavcodec on two threads and nothing else.
"""

import loaders
from measure import Row, Verdict


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    root = loaders.cameras()
    our_rows = {workers: Row(f"ours, {workers} decode threads") for workers in (2, 4)}
    their_rows = {workers: Row(f"LeRobot, {workers} workers") for workers in (0, 2, 4)}
    limit_row = Row("decode limit, 2 threads")
    for round_number in range(rounds):
        limit_row.add(**loaders.limit(root, round_number))
        for workers, row in our_rows.items():
            quantities, _ = loaders.ours(root, workers)
            row.add(**quantities)
        for workers, row in their_rows.items():
            row.add(**loaders.peer("map_loader.py", root, workers))

    best, peer = loaders.fastest(our_rows), loaders.fastest(their_rows)
    quickest = loaders.quickest_start(their_rows)
    return [*our_rows.values(), *their_rows.values(), limit_row], [
        Verdict("limit", "samples/s", best.median("samples_per_s"), limit_row.median("samples_per_s"), limit_row.name, ">= 0.85"),
        Verdict("throughput", "samples/s", best.median("samples_per_s"), peer.median("samples_per_s"), peer.name, ">= 2.2"),
        Verdict("first_batch", "s", best.median("first_batch_s"), quickest.median("first_batch_s"), quickest.name, "ours <= 0.6 s"),
        Verdict("memory", "MiB", best.median("pss_mib"), peer.median("pss_mib"), peer.name, "<= 0.25"),
    ]
