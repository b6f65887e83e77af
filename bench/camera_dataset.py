"""A LeRobotDataset of three 640x480 AV1 cameras with keyframes at every second frame, as LeRobot records them."""

import json
import pathlib
import shutil
import subprocess

import numpy
import pyarrow
import pyarrow.parquet

FPS = 30
EPISODES = 20
LENGTH = 150
FILES_PER_CHUNK = 1000
WIDTH, HEIGHT = 640, 480
CAMERAS = ["observation.images.top", "observation.images.left", "observation.images.right"]
DIMENSIONS = {"observation.state": 14, "action": 14}

# Moving shapes and textures with the grain of a sensor: about 20 kB a frame, some 4 ms to decode a keyframe.
SCENES = [
    "testsrc2=size={w}x{h}:rate={fps}:duration={s},noise=alls=11:allf=t:all_seed=1",
    "testsrc2=size={w}x{h}:rate={fps}:duration={s},hflip,hue=h=90,noise=alls=10:allf=t:all_seed=2",
    "life=size={w}x{h}:rate={fps}:mold=10:ratio=0.1:seed=3:life_color=0xC0A060:death_color=0x2040A0:mold_color=0x307050,"
    "gblur=sigma=0.8,noise=alls=6:allf=t:all_seed=3",
]
STATISTICS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")


def make(root: pathlib.Path) -> pathlib.Path:
    """The dataset under `root`, made (one to three minutes) when it is not there."""
    if (root / "meta" / "info.json").exists():
        return root
    making = root.with_name(root.name + ".making")
    shutil.rmtree(making, ignore_errors=True)
    frames = EPISODES * LENGTH
    for camera, scene in zip(CAMERAS, SCENES, strict=True):
        file = making / "videos" / camera / "chunk-000" / "file-000.mp4"
        file.parent.mkdir(parents=True)
        source = scene.format(w=WIDTH, h=HEIGHT, fps=FPS, s=frames / FPS)
        subprocess.run(
            ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-frames:v", str(frames), "-c:v", "libsvtav1", "-preset", "12"]
            + ["-crf", "30", "-g", "2", "-pix_fmt", "yuv420p", "-movflags", "+faststart", file],
            check=True,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    write_tables(making, frames)
    making.rename(root)
    return root


def write_tables(root: pathlib.Path, frames: int) -> None:
    random = numpy.random.default_rng(1)
    index = numpy.arange(frames)
    vectors = made_up_vectors(random, frames)
    columns = {
        **{
            name: pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), values.shape[1])
            for name, values in vectors.items()
        },
        "timestamp": pyarrow.array((index % LENGTH / FPS).astype(numpy.float32)),
        "frame_index": pyarrow.array(index % LENGTH),
        "episode_index": pyarrow.array(index // LENGTH),
        "index": pyarrow.array(index),
        "task_index": pyarrow.array(numpy.zeros(frames, dtype=numpy.int64)),
    }
    write(root / "data/chunk-000/file-000.parquet", pyarrow.table(columns))
    write_metadata(root, lengths=numpy.full(EPISODES, LENGTH), episodes_per_file=EPISODES, vectors=vectors)


def made_up_vectors(random: numpy.random.Generator, frames: int) -> dict[str, numpy.ndarray]:
    return {
        name: numpy.cumsum(random.normal(scale=0.02, size=(frames, size)), axis=0).astype(numpy.float32)
        for name, size in DIMENSIONS.items()
    }


def write_metadata(root: pathlib.Path, lengths: numpy.ndarray, episodes_per_file: int, vectors: dict[str, numpy.ndarray]) -> None:
    """meta/ of episodes of these lengths (frames), so many of them to each data and video file; statistics of `vectors`."""
    count = len(lengths)
    ends = numpy.cumsum(lengths)
    starts = ends - lengths
    number = numpy.arange(count)
    chunk, file = numpy.divmod(number // episodes_per_file, FILES_PER_CHUNK)
    start_in_file = starts - starts[number // episodes_per_file * episodes_per_file]
    zeros = numpy.zeros(count, dtype=numpy.int64)
    episodes = {
        "episode_index": number,
        "tasks": pyarrow.array([["watch"]] * count),
        "length": lengths,
        "data/chunk_index": chunk,
        "data/file_index": file,
        "dataset_from_index": starts,
        "dataset_to_index": ends,
    }
    for camera in CAMERAS:
        episodes |= {
            f"videos/{camera}/chunk_index": chunk,
            f"videos/{camera}/file_index": file,
            f"videos/{camera}/from_timestamp": start_in_file / FPS,
            f"videos/{camera}/to_timestamp": (start_in_file + lengths) / FPS,
        }
    episodes |= {"meta/episodes/chunk_index": zeros, "meta/episodes/file_index": zeros}
    write(root / "meta/episodes/chunk-000/file-000.parquet", pyarrow.table(episodes))

    pandas_metadata = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None},
            {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
        ],
        "pandas_version": "2.3.3",
    }
    tasks = pyarrow.table({"task_index": numpy.zeros(1, dtype=numpy.int64), "task": ["watch"]})
    write(root / "meta/tasks.parquet", tasks.replace_schema_metadata({"pandas": json.dumps(pandas_metadata)}))

    features = {name: {"dtype": "float32", "shape": [size], "names": None} for name, size in DIMENSIONS.items()}
    features |= {
        camera: {
            "dtype": "video",
            "shape": [HEIGHT, WIDTH, 3],
            "names": ["height", "width", "channels"],
            "info": {
                "video.height": HEIGHT,
                "video.width": WIDTH,
                "video.codec": "av1",
                "video.pix_fmt": "yuv420p",
                "video.fps": FPS,
                "video.channels": 3,
                "has_audio": False,
                "is_depth_map": False,
            },
        }
        for camera in CAMERAS
    }
    features |= {"timestamp": {"dtype": "float32", "shape": [1], "names": None}}
    features |= {
        name: {"dtype": "int64", "shape": [1], "names": None} for name in ("frame_index", "episode_index", "index", "task_index")
    }
    information = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "features": features,
        "total_episodes": count,
        "total_frames": int(ends[-1]),
        "total_tasks": 1,
        "chunks_size": FILES_PER_CHUNK,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "robot_type": None,
        "splits": {"train": f"0:{count}"},
    }
    statistics = {name: summary(values) for name, values in vectors.items()}
    picture = [[[0.5]]] * 3
    statistics |= {
        camera: {**{name: picture for name in STATISTICS}, "min": [[[0.0]]] * 3, "max": [[[1.0]]] * 3, "std": [[[0.2]]] * 3, "count": [100]}
        for camera in CAMERAS
    }
    (root / "meta/stats.json").write_text(json.dumps(statistics, indent=4))
    (root / "meta/info.json").write_text(json.dumps(information, indent=4))


def summary(values: numpy.ndarray) -> dict:
    quantiles = {f"q{q:02d}": numpy.quantile(values, q / 100, axis=0).tolist() for q in (1, 10, 50, 90, 99)}
    return {
        "min": values.min(axis=0).tolist(),
        "max": values.max(axis=0).tolist(),
        "mean": values.mean(axis=0).tolist(),
        "std": values.std(axis=0).tolist(),
        "count": [len(values)],
        **quantiles,
    }


def write(path: pathlib.Path, table: pyarrow.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path, compression="snappy")
