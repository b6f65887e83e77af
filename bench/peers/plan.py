"""LeRobot reads a dataset's metadata and resumes its map-style sampler in the middle of an epoch. Prints one JSON line, as plan_scale.

  plan.py ROOT BATCH_SIZE
"""

import json
import pathlib
import re
import sys
import time

from lerobot.datasets import EpisodeAwareSampler
from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata
from lerobot.datasets.sampler import compute_sampler_state


def peak_bytes() -> int:
    return int(re.search(r"^VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text(), re.M)[1]) * 1024


def main() -> None:
    root, batch_size = sys.argv[1], int(sys.argv[2])
    before = peak_bytes()
    began = time.monotonic()
    metadata = LeRobotDatasetMetadata("bench/planned", root)
    sampler = EpisodeAwareSampler(
        metadata.episodes["dataset_from_index"], metadata.episodes["dataset_to_index"], shuffle=True, seed=1000
    )
    opened = time.monotonic()
    sampler.load_state_dict(compute_sampler_state(len(sampler) // 2 // batch_size, len(sampler), batch_size, 1))
    next(iter(sampler))
    resumed = time.monotonic()
    episodes = metadata.total_episodes
    print(
        json.dumps(
            {
                "episodes": episodes,
                "frames": len(sampler),
                "open_s": opened - began,
                "resume_mid_s": resumed - opened,
                "peak_bytes": (peak_bytes() - before) / episodes,
            }
        )
    )


if __name__ == "__main__":
    main()
