"""What LeRobot can tell of every video of a dataset; prints how many files it looked at and in how many seconds.

  probe_videos.py ROOT header|approximate|exact

header: LeRobot's get_video_info (PyAV). approximate, exact: torchcodec's decoder in that seek mode; LeRobot uses the first one.
"""

import pathlib
import sys
import time

from lerobot.datasets.video_utils import get_video_info
from torchcodec.decoders import VideoDecoder

PROBES = {
    "header": get_video_info,
    "approximate": lambda file: VideoDecoder(file, seek_mode="approximate").metadata,
    "exact": lambda file: VideoDecoder(file, seek_mode="exact").metadata,
}


def main() -> None:
    files = sorted(str(file) for file in pathlib.Path(sys.argv[1]).glob("videos/*/*/*.mp4"))
    probe = PROBES[sys.argv[2]]
    began = time.monotonic()
    for file in files:
        probe(file)
    print(f"{len(files)} files in {time.monotonic() - began} s", flush=True)


if __name__ == "__main__":
    main()
