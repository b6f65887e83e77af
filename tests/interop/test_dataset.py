"""Our reading of a dataset and LeRobotDataset's agree: every fixture, every key, every frame."""

import json
import os
import subprocess

import pytest
import safetensors.torch
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from trainer import DATASETS

CASES = {
    "H.264": ("toy_h264", {}),
    "AV1": ("toy_av1", {}),
    "files that roll over": ("toy_split", {}),
    "no cameras": ("toy_state", {}),
    "every type": ("toy_types", {}),
    "every type, depth in metres": ("toy_types", {"depth_unit": "m"}),
    "action window": ("toy_h264", {"action": range(0, 12)}),
    "windows on both sides": ("toy_h264", {"action": range(-1, 3), "observation": [-2, -1, 0], "image": [-1, 0, 1]}),
    "windows over files that roll over": ("toy_split", {"action": range(0, 5), "observation": [-1, 0], "image": [-1, 0]}),
    "window of one": ("toy_h264", {"observation": [0], "image": [0]}),
    "windows of every type": ("toy_types", {"action": range(0, 4), "observation": [-1, 0], "image": [-1, 0], "reward": [0, 1]}),
    "one episode": ("toy_h264", {"episodes": [1], "action": range(-1, 3)}),
    "episodes in another order": ("toy_h264", {"episodes": [2, 0], "action": range(-1, 3), "image": [-1, 0]}),
    "episodes across files": ("toy_split", {"episodes": [7, 2, 4], "action": range(0, 8)}),
}


def delta_timestamps(features: dict, fps: float, windows: dict) -> dict | None:
    """LeRobot's seconds by key, for frame offsets by kind of feature."""
    seconds = {}
    for key in features:
        for kind, matches in {
            "reward": key == "next.reward",
            "action": key == "action",
            "image": key.startswith("observation.image"),
            "observation": key.startswith("observation.") and not key.startswith("observation.image"),
        }.items():
            if matches and kind in windows:
                seconds[key] = [offset / fps for offset in windows[kind]]
    return seconds or None


@pytest.mark.parametrize("case", CASES)
def test_samples_agree(programs, tmp_path, case):
    name, options = CASES[case]
    root = DATASETS / name
    information = json.loads((root / "meta/info.json").read_text())
    windows = {kind: list(offsets) for kind, offsets in options.items() if kind in ("reward", "action", "image", "observation")}
    theirs = LeRobotDataset(
        f"facts/{name}",
        root=root,
        episodes=options.get("episodes"),
        delta_timestamps=delta_timestamps(information["features"], information["fps"], windows),
        return_uint8=True,
        **({"depth_output_unit": options["depth_unit"]} if "depth_unit" in options else {}),
    )

    arguments = {
        kind: value if isinstance(value, str) else ",".join(map(str, value)) for kind, value in options.items()
    }
    out = tmp_path / "items.safetensors"
    tool = os.environ.get("LEROBOT_DUMP_ITEMS", programs / "dump_items")
    subprocess.run([tool, out, root, *(f"{key}={value}" for key, value in arguments.items())], check=True)
    ours = safetensors.torch.load_file(out)
    strings = json.loads(out.with_suffix(".json").read_text())

    assert len(ours["index"]) == len(theirs)
    for row, item in enumerate(theirs[row] for row in range(len(theirs))):
        assert item.keys() == ours.keys() | strings.keys()
        for key, value in item.items():
            where = f"{case}, row {row}, {key}"
            if isinstance(value, str):
                assert strings[key][row] == value, where
                continue
            value = torch.as_tensor(value)
            assert ours[key][row].shape == value.shape, where
            if ours[key].dtype == torch.uint8 and value.dtype == torch.float32:
                # LeRobot divides pictures of "image" columns by 255 while it reads, we in the batch as for videos.
                value = (value * 255).round().to(torch.uint8)
            assert ours[key].dtype == value.dtype, where
            assert torch.equal(ours[key][row], value), where
