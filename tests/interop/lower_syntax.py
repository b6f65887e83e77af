"""Let LeRobot 0.6.1 run on Python 3.11.

It asks for 3.12 only because eight lines use that version's syntax for generics and type aliases. This replaces them, in the copy
that is installed beside the running interpreter, by what 3.11 understands. Types only: behaviour stays as it is.
"""

import importlib.util
import pathlib
import sys

# File, the line as released, the line for 3.11.
LINES = [
    (
        "processor/pipeline.py",
        "class DataProcessorPipeline[TInput, TOutput](HubMixin):",
        "class DataProcessorPipeline(HubMixin, __import__('typing').Generic["
        "(TInput := __import__('typing').TypeVar('TInput')), (TOutput := __import__('typing').TypeVar('TOutput'))]):",
    ),
    (
        "datasets/streaming_dataset.py",
        "class Backtrackable[T]:",
        "class Backtrackable(__import__('typing').Generic[(T := __import__('typing').TypeVar('T'))]):",
    ),
    (
        "utils/io_utils.py",
        "def deserialize_json_into_object[T: JsonLike](fpath: Path, obj: T) -> T:",
        "def deserialize_json_into_object(fpath, obj):",
    ),
    ("motors/motors_bus.py", "type NameOrID = str | int", "NameOrID = str | int"),
    ("motors/motors_bus.py", "type Value = int | float", "Value = int | float"),
    ("datasets/aggregate.py", "type FeatureDict = dict[str, dict[str, Any]]", "FeatureDict = dict[str, dict[str, Any]]"),
    ("datasets/aggregate.py", "type ChunkFile = tuple[int, int]", "ChunkFile = tuple[int, int]"),
    ("datasets/aggregate.py", "type VideoIndexState = dict[str, VideoIndex]", "VideoIndexState = dict[str, VideoIndex]"),
]


def lower(package: pathlib.Path) -> None:
    """Rewrites the lines in the package folder. Running it again changes nothing."""
    for file, released, lowered in LINES:
        path = package / file
        lines = path.read_text().splitlines()
        if lowered in lines:
            continue
        if lines.count(released) != 1:
            sys.exit(f"lower_syntax: {path}: expected the line {released!r} once, found it {lines.count(released)} times")
        lines[lines.index(released)] = lowered
        path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__" and sys.version_info < (3, 12):
    [location] = importlib.util.find_spec("lerobot").submodule_search_locations
    lower(pathlib.Path(location))
