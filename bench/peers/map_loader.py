"""LeRobot's map-style loader as lerobot-train sets it up. Prints a line as each batch arrives.

  map_loader.py ROOT WORKERS BATCHES BATCH_SIZE CHUNK
"""

import sys

from batches import print_batches
from lerobot.datasets import EpisodeAwareSampler
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main() -> None:
    root = sys.argv[1]
    workers, batches, batch_size, chunk = map(int, sys.argv[2:])
    fps = LeRobotDataset("bench/cameras", root=root).meta.fps
    dataset = LeRobotDataset(
        "bench/cameras", root=root, delta_timestamps={"action": [step / fps for step in range(chunk)]}, return_uint8=True
    )
    sampler = EpisodeAwareSampler(
        dataset.meta.episodes["dataset_from_index"], dataset.meta.episodes["dataset_to_index"], shuffle=True, seed=1000
    )
    print_batches(dataset, workers=workers, batches=batches, batch_size=batch_size, sampler=sampler)


if __name__ == "__main__":
    main()
