"""Writes what LeRobotDataset gives for items of the fixtures (tests/data/oracles/dataset_items.json)
and what LeRobot's depth codes stand for (depth_dequantized.json).

    python tests/dataset/make_item_oracle.py

Needs lerobot 0.6 with torchcodec or PyAV. Every tensor is recorded as dtype, shape and the first 16
digits of the SHA-256 of its bytes, in the form that a batch of lerobot.cpp has: RGB images as uint8, which LeRobot's float
values are fractions of.
"""

import hashlib
import json
import pathlib

import torch
from lerobot.datasets.depth_utils import dequantize_depth
from lerobot.datasets.lerobot_dataset import LeRobotDataset

DATA = pathlib.Path(__file__).parent.parent / "data"

# name: dataset, episodes, frame offsets by key, depth unit, items
CASES = {
    "types_mm": ("toy_types", None, {}, "mm", range(10)),
    "types_m": ("toy_types", None, {}, "m", range(10)),
    "types_windows": (
        "toy_types",
        None,
        {
            "action": [-1, 0, 1, 2],
            "observation.state": [0],
            "observation.environment_state": [0],
            "next.reward": [0, 1],
            "observation.images.still": [-1, 0],
            "observation.images.video": [-1, 0],
            "observation.images.depthvid": [-1, 0],
            "observation.images.depthimg": [-1, 0],
        },
        "mm",
        range(10),
    ),
    "h264_windows": (
        "toy_h264",
        None,
        {
            "action": [0, 1, 2, 3, 4],
            "observation.state": [-2, -1, 0],
            "observation.images.front": [-1, 0],
            "observation.images.wrist": [-1, 0],
        },
        "mm",
        range(0, 43, 2),
    ),
    "av1_single": (
        "toy_av1",
        None,
        {"observation.images.front": [0], "observation.state": [0]},
        "mm",
        range(0, 43, 5),
    ),
}
for label, episodes in {"all": None, "1": [1], "20": [2, 0], "024": [0, 2, 4]}.items():
    CASES[f"split_{label}"] = (
        "toy_split",
        episodes,
        {
            "action": [-1, 0, 1, 2],
            "observation.state": [-1, 0, 1, 2],
            "observation.images.front": [-1, 0, 1, 2],
        },
        "mm",
        None,
    )


def described(key, value, image_keys):
    if isinstance(value, str):
        return value
    if key in image_keys:
        value = (value * 255).round().to(torch.uint8)
    value = value.contiguous()
    digest = hashlib.sha256(value.numpy().tobytes()).hexdigest()
    return [str(value.dtype).removeprefix("torch."), list(value.shape), digest[:16]]


def write_depth_oracle():
    codes = torch.arange(4096).reshape(1, 64, 64)
    entries = []
    for low, high, shift, use_log in [(0.01, 10.0, 3.5, True), (0.2, 3.0, 0.1, True), (0.25, 7.5, 0.0, False)]:
        for unit in ["m", "mm"]:
            depth = dequantize_depth(
                codes, depth_min=low, depth_max=high, shift=shift, use_log=use_log, output_unit=unit
            )
            digest = hashlib.sha256(depth.contiguous().numpy().tobytes()).hexdigest()
            entries.append(
                {"min": low, "max": high, "shift": shift, "use_log": use_log, "unit": unit, "sha256": digest}
            )
    (DATA / "oracles" / "depth_dequantized.json").write_text(json.dumps(entries, indent=1) + "\n")


def main():
    write_depth_oracle()
    oracle = {}
    for name, (dataset_name, episodes, deltas, unit, items) in CASES.items():
        root = DATA / "datasets" / dataset_name
        fps = json.loads((root / "meta/info.json").read_text())["fps"]
        dataset = LeRobotDataset(
            f"toy/{dataset_name}",
            root=root,
            episodes=episodes,
            delta_timestamps={key: [d / fps for d in offsets] for key, offsets in deltas.items()} or None,
            return_uint8=True,
            depth_output_unit=unit,
        )
        images = set(dataset.meta.image_keys) - set(dataset.meta.depth_keys)
        positions = list(items if items is not None else range(len(dataset)))
        oracle[name] = {
            "dataset": dataset_name,
            "episodes": episodes,
            "deltas": deltas,
            "unit": unit,
            "size": len(dataset),
            "items": [
                {
                    "position": position,
                    "values": {k: described(k, v, images) for k, v in dataset[position].items()},
                }
                for position in positions
            ],
        }
    path = DATA / "oracles" / "dataset_items.json"
    cases = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in oracle.items()]
    path.write_text("{\n" + ",\n".join(cases) + "\n}\n")


if __name__ == "__main__":
    main()
