"""LeRobot's StreamingLeRobotDataset as lerobot-train --dataset.streaming=true sets it up. Prints a line as each batch arrives.

  streaming_loader.py ROOT WORKERS BATCHES BATCH_SIZE CHUNK

A DataLoader worker of it reads data files of its own: ROOT needs at least as many of them as there are workers. lerobot-train passes
max_num_shards=WORKERS, which yields nothing without workers: here it is at least 1.
"""

import sys

from batches import print_batches
from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata
from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset


def main() -> None:
    root = sys.argv[1]
    workers, batches, batch_size, chunk = map(int, sys.argv[2:])
    fps = LeRobotDatasetMetadata("bench/cameras", root).fps
    dataset = StreamingLeRobotDataset(
        "bench/cameras",
        root=root,
        delta_timestamps={"action": [step / fps for step in range(chunk)]},
        max_num_shards=max(1, workers),
        return_uint8=True,
    )
    print_batches(dataset, workers=workers, batches=batches, batch_size=batch_size)


if __name__ == "__main__":
    main()
