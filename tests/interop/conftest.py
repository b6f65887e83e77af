"""Interoperability: lerobot-train beside the real LeRobot 0.6.1, on the same data, with the same flags.

Run through scripts/test, or with the environment that tests/interop/install makes:
  .deps/interop/bin/python -m pytest tests/interop
LEROBOT_BIN names the folder of our programs (default: build/release/bin).
"""

import os
import pathlib
import tempfile

# Before anything imports torch or huggingface_hub: no network but servers of our own, no GPU, a cache of our own, and one thread, which
# is the fastest for models this small.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = os.path.join(tempfile.gettempdir(), f"lerobot-interop-hf-{os.getuid()}")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"

import pytest

import peer
import trainer

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DATASETS = PROJECT / "tests" / "data" / "datasets"


@pytest.fixture(scope="session")
def programs() -> pathlib.Path:
    """The folder of our programs."""
    folder = pathlib.Path(os.environ.get("LEROBOT_BIN", PROJECT / "build" / "release" / "bin")).resolve()
    if not (folder / "lerobot-train").exists():
        pytest.exit(f"{folder}/lerobot-train is missing: run scripts/build, or set LEROBOT_BIN", returncode=3)
    return folder


class Runs:
    """Starts training runs of either side and keeps them: the same side and flags give the same run."""

    def __init__(self, programs: pathlib.Path, folder: pathlib.Path):
        self._programs = programs
        self._folder = folder
        self._done: dict[tuple, trainer.Run] = {}

    def _output(self, side: str) -> pathlib.Path:
        return self._folder / f"{len(self._done):02d}-{side}"

    def ours(self, **flags) -> trainer.Run:
        return self._once("ours", flags, lambda output: trainer.train(self._programs, output, flags))

    def theirs(self, **flags) -> trainer.Run:
        return self._once("theirs", flags, lambda output: peer.train(output, flags))

    def _once(self, side, flags, start) -> trainer.Run:
        key = (side, *sorted((name, str(value)) for name, value in flags.items()))
        if key not in self._done:
            self._done[key] = start(self._output(side))
        return self._done[key]


@pytest.fixture(scope="session")
def runs(programs, tmp_path_factory) -> Runs:
    return Runs(programs, tmp_path_factory.mktemp("runs"))
