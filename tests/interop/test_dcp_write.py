"""Folders that our ranks write are what torch.distributed.checkpoint and accelerate write: they load there, to the bit."""

import io
import os
import subprocess
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

from test_dcp import SHARDS, assert_equal, convert, read_ours, read_theirs

LAYOUTS = {"1 rank": (1, 1), "2 ranks": (2, 1), "3 ranks": (3, 1), "4 ranks": (4, 1), "2 replicas of 2": (2, 2)}


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)

    def random(*size, dtype=torch.float32):
        return torch.randn(*size, generator=generator).to(dtype)

    return {
        "model.uneven": random(7, 5),
        "model.one_row": random(1, 32),
        "model.three_rows": random(3, 32),
        "model.cube": random(5, 3, 4),
        "model.vector": random(13),
        "model.half": random(10, 3, dtype=torch.bfloat16),
        "model.fp16": random(3, 2, dtype=torch.float16),
        "model.counts": torch.arange(11, dtype=torch.int64) * 2**40,
        "model.mask": random(9) > 0,
        **{f"model.large.{i}": random(383, 1103) for i in range(4)},
        "model.none": torch.zeros(0, 4),
        "model.scalar": torch.tensor(3.5),
        "buffer.mean": random(6),
        "buffer.count": torch.tensor(2**40),
    }


def write(programs, tmp_path, kind, tensors, layout, *arguments):
    shards, replicas = layout
    source = tmp_path / f"{kind}.in.safetensors"
    safetensors.torch.save_file(tensors, source)
    folder = tmp_path / "run" / "pretrained_model" / SHARDS if kind == "model" else tmp_path / "optimizer_0"
    command = [programs / "write_dcp", kind, source, folder, str(shards), str(replicas), *map(str, arguments)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def item_bytes(folder, place) -> bytes:
    return (folder / place.relative_path).read_bytes()[place.offset : place.offset + place.length]


def saved_by_torch(value) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_torch_loads_what_our_ranks_wrote(programs, tmp_path, layout):
    expected = weights()
    folder = write(programs, tmp_path, "model", expected, layout)
    merged, values = read_theirs(folder)
    assert not values
    assert_equal(merged, {f"model.{name}": tensor for name, tensor in expected.items()})

    state = {"model": {name: torch.empty_like(tensor) for name, tensor in expected.items()}}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    assert_equal(state["model"], expected)
    assert_equal(read_ours(programs, folder, tmp_path)[0], merged)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_item_is_the_file_that_torch_saves(programs, tmp_path, layout):
    expected = weights()
    folder = write(programs, tmp_path, "model", expected, layout)
    metadata = dcp.FileSystemReader(folder).read_metadata()
    ends = {}
    for index, place in sorted(metadata.storage_data.items(), key=lambda item: (item[1].relative_path, item[1].offset)):
        chunk = metadata.state_dict_metadata[index.fqn].chunks[index.index]
        assert chunk.offsets == index.offset
        whole = expected[index.fqn.removeprefix("model.")]
        part = whole[tuple(slice(begin, begin + size) for begin, size in zip(chunk.offsets, chunk.sizes))]
        assert item_bytes(folder, place) == saved_by_torch(part.clone()), index
        # Without gaps.
        assert place.offset == ends.get(place.relative_path, 0)
        ends[place.relative_path] = place.offset + place.length
    assert {file.name: file.stat().st_size for file in folder.glob("*.distcp")} == ends
    assert {file.name for file in folder.iterdir()} == {".metadata", *ends}


def save_with_torch(rank: int, shards: int, replicas: int, port: int, folder: str):
    world = shards * replicas
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replica", "shard"))
    state = {}
    for name, tensor in weights().items():
        whole = tensor.dim() == 0 or name.startswith("buffer")
        state[name] = tensor if whole else distribute_tensor(tensor, mesh, [Replicate(), Shard(0)])
    dcp.save({"model": state}, checkpoint_id=folder)
    torch.distributed.destroy_process_group()


def described(metadata) -> dict:
    entries = {}
    for name, entry in metadata.state_dict_metadata.items():
        chunks = sorted((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks)
        entries[name] = (entry.properties, entry.size, chunks)
    return entries


@pytest.mark.parametrize("layout", [(3, 1), (4, 1), (2, 2)], ids=["3 ranks", "4 ranks", "2 replicas of 2"])
def test_the_description_is_the_one_that_torch_writes(programs, tmp_path, layout):
    folder = write(programs, tmp_path, "model", weights(), layout)
    theirs_folder = tmp_path / "theirs"
    port = 29500 + os.getpid() % 1000
    torch.multiprocessing.spawn(save_with_torch, (*layout, port, str(theirs_folder)), nprocs=layout[0] * layout[1])
    ours = dcp.FileSystemReader(folder).read_metadata()
    theirs = dcp.FileSystemReader(theirs_folder).read_metadata()
    assert described(ours) == described(theirs)
    assert ours.planner_data == theirs.planner_data
    assert ours.version == theirs.version
    assert set(ours.storage_data) == set(theirs.storage_data)
    for index, place in ours.storage_data.items():
        assert item_bytes(folder, place) == item_bytes(theirs_folder, theirs.storage_data[index]), index
    # The work is shared: no rank writes much more than its part.
    sizes = sorted(file.stat().st_size for file in folder.glob("*.distcp"))
    assert len(sizes) == layout[0] * layout[1] and sizes[-1] < 1.1 * sizes[0]


def test_a_description_of_several_frames_loads(programs, tmp_path):
    expected = {f"model.a_rather_long_name_of_a_layer.{i}.weight": torch.full((3, 2), float(i)) for i in range(600)}
    folder = write(programs, tmp_path, "model", expected, (2, 1))
    assert (folder / ".metadata").stat().st_size > 2 * 64 * 1024
    merged, _ = read_theirs(folder)
    assert_equal(merged, {f"model.{name}": tensor for name, tensor in expected.items()})


@pytest.mark.parametrize("layout", [(2, 1), (2, 2)], ids=["2 ranks", "2 replicas of 2"])
def test_accelerate_and_our_converter_merge_them(programs, tmp_path, layout):
    from accelerate.utils import merge_fsdp_weights

    folder = write(programs, tmp_path, "model", weights(), layout)
    (folder.parent / "config.json").write_text("{}")
    merge_fsdp_weights(str(folder), str(tmp_path / "merged"))
    done = convert(programs, folder.parent)
    assert done.returncode == 0, done.stderr
    merged = tmp_path / "merged" / "model.safetensors"
    assert_equal(safetensors.torch.load_file(merged), weights())
    assert (folder.parent / "model.safetensors").read_bytes() == merged.read_bytes()


class Policy(torch.nn.Module):
    """Parameters whose shards are uneven and empty, in two groups of an optimizer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.model = torch.nn.Module()
        self.model.backbone = torch.nn.Linear(4, 7)
        self.model.head = torch.nn.Linear(6, 3)
        self.model.embedding = torch.nn.Embedding(1, 32)

    def optimizer(self) -> torch.optim.Optimizer:
        groups = [[], []]
        for name, parameter in self.named_parameters():
            groups["backbone" in name].append(parameter)
        return torch.optim.AdamW([{"params": groups[0]}, {"params": groups[1], "lr": 1e-5}])

    def trained(self, steps: int) -> torch.optim.Optimizer:
        optimizer = self.optimizer()
        for _ in range(steps):
            for parameter in self.parameters():
                parameter.grad = parameter.detach().clone()
            optimizer.step()
        return optimizer

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.named_parameters()}


@pytest.mark.parametrize("steps", [0, 3], ids=["never stepped", "3 steps"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_accelerate_resumes_an_optimizer_from_our_folder(programs, tmp_path, layout, steps):
    from accelerate.utils import fsdp_utils
    from torch.distributed.fsdp import StateDictType

    # Another rate and no decay: what is loaded must replace them.
    policy = Policy()
    write(programs, tmp_path, "optimizer", policy.tensors(), layout, steps)
    optimizer = policy.optimizer()
    for group in optimizer.param_groups:
        group.update(lr=0.5, weight_decay=0.0)
    plugin = SimpleNamespace(
        fsdp_version=2, state_dict_type=StateDictType.SHARDED_STATE_DICT, optim_state_dict_config=None, state_dict_config=None
    )
    plugin.state_dict_config = SimpleNamespace(offload_to_cpu=True, rank0_only=False)
    accelerator = SimpleNamespace(wait_for_everyone=lambda: None, process_index=0, num_processes=1)
    fsdp_utils.load_fsdp_optimizer(plugin, accelerator, optimizer, policy, str(tmp_path))

    ours = safetensors.torch.load_file(tmp_path / "optimizer_0.safetensors")
    assert bool(ours) == bool(steps)
    reference = Policy().trained(steps)
    names = {parameter: name for name, parameter in policy.named_parameters()}
    assert len(optimizer.state) == len(names)
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            expected = ours.get(f"optimizer.state.{names[parameter]}.{key}", torch.zeros_like(value))
            assert torch.equal(value, expected), (names[parameter], key)
    for group, expected in zip(optimizer.param_groups, reference.param_groups, strict=True):
        assert {key: value for key, value in group.items() if key != "params"} == {
            key: value for key, value in expected.items() if key != "params"
        }


def test_an_optimizers_entries_and_values_are_those_of_torch(programs, tmp_path):
    policy = Policy()
    folder = write(programs, tmp_path, "optimizer", policy.tensors(), (2, 1), 3)
    optimizer = policy.trained(3)
    state = dcp.state_dict.get_optimizer_state_dict(policy, optimizer)
    dcp.save({"optimizer": state}, checkpoint_id=tmp_path / "theirs", no_dist=True)
    ours = dcp.FileSystemReader(folder).read_metadata()
    theirs = dcp.FileSystemReader(tmp_path / "theirs").read_metadata()
    assert ours.planner_data == theirs.planner_data
    assert ours.state_dict_metadata.keys() == theirs.state_dict_metadata.keys()
    places = {index.fqn: place for index, place in theirs.storage_data.items()}
    for index, place in ours.storage_data.items():
        entry = theirs.state_dict_metadata[index.fqn]
        if not isinstance(entry, BytesStorageMetadata):
            assert ours.state_dict_metadata[index.fqn].size == entry.size
        elif not index.fqn.endswith(".params"):
            assert item_bytes(folder, place) == item_bytes(tmp_path / "theirs", places[index.fqn]), index
    # Our order of the parameters is the file's; the names are the same.
    mine, _ = read_theirs(folder)
    other, _ = read_theirs(tmp_path / "theirs")
    assert mine.keys() == other.keys()
    for name, tensor in other.items():
        torch.testing.assert_close(mine[name], tensor, rtol=1e-6, atol=1e-9)
