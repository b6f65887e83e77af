"""Folders of torch.distributed.checkpoint are read here as torch reads them, and lerobot-convert-dcp's files load in LeRobot."""

import json
import os
import shutil
import subprocess

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

from trainer import PROJECT

DATA = PROJECT / "tests" / "data"
FSDP2 = DATA / "checkpoints" / "state_fsdp2" / "000008"
HSDP4 = DATA / "checkpoints" / "state_hsdp4" / "000008"
SHARDS = "pytorch_model_fsdp_0"
FOLDERS = {
    "tiny": DATA / "dcp" / "dcp_tiny",
    "foreign": DATA / "dcp" / "dcp_foreign",
    "fsdp2-model": FSDP2 / "pretrained_model" / SHARDS,
    "fsdp2-optimizer": FSDP2 / "training_state" / "optimizer_0",
    "hsdp4-model": HSDP4 / "pretrained_model" / SHARDS,
}


def read_ours(programs, folder, scratch) -> tuple[dict, dict]:
    out = scratch / "ours.safetensors"
    done = subprocess.run([programs / "dump_dcp", folder, out], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return safetensors.torch.load_file(out), json.loads(out.with_suffix(".json").read_text())


def as_json(value):
    """Lists and tuples told apart, as dump_dcp writes them."""
    if isinstance(value, tuple):
        return {"tuple": [as_json(item) for item in value]}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value


def read_theirs(folder) -> tuple[dict, dict]:
    """Tensors and other values by flat name."""
    entries = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {}
    planner = _EmptyStateDictLoadPlanner(flatten_state_dict=True)
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(folder), planner=planner, no_dist=True)
    flat, _ = dcp._nested_dict.flatten_state_dict(state)
    assert flat.keys() == entries.keys()
    tensors = {name: value for name, value in flat.items() if isinstance(value, torch.Tensor)}
    return tensors, {name: as_json(value) for name, value in flat.items() if name not in tensors}


def assert_equal(ours: dict, theirs: dict):
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype and torch.equal(ours[name], tensor), name


def convert(programs, folder, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [programs / "lerobot-convert-dcp", f"--checkpoint_dir={folder}", *arguments], text=True, capture_output=True, timeout=120
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_read_as_torch_reads_it(programs, tmp_path, name):
    ours, our_values = read_ours(programs, FOLDERS[name], tmp_path)
    theirs, their_values = read_theirs(FOLDERS[name])
    assert len(theirs) > 1
    assert_equal(ours, theirs)
    assert json.dumps(our_values, sort_keys=True) == json.dumps(their_values, sort_keys=True)


def weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def random(*size, dtype=torch.float32):
        return torch.randn(*size, generator=generator).to(dtype)

    return {
        "uneven": random(7, 5),
        "one_row": random(1, 32),
        "two_rows": random(2, 3, 4),
        "vector": random(13),
        "half": random(10, 3, dtype=torch.bfloat16),
        "fp16": random(3, 2, dtype=torch.float16),
        "counts": torch.arange(11, dtype=torch.int64) * 2**40,
        "mask": random(9) > 0,
        "large": random(1531, 1103),
        "columns": random(6, 10),
        "none": torch.zeros(0, 4),
    }


def save_sharded(rank: int, world: int, replicas: int, port: int, folder: str):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replica", "shard"))
    state = {}
    for name, tensor in weights(5).items():
        placement = Shard(1) if name == "columns" else Shard(0)
        state[name] = distribute_tensor(tensor, mesh, [Replicate(), placement])
    state["buffer"] = torch.arange(6.0)
    state["scalar"] = torch.tensor(3.5)
    assert isinstance(state["uneven"], DTensor)
    dcp.save({"model": state}, checkpoint_id=folder)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("world", "replicas"), [(3, 1), (4, 2)], ids=["three-shards", "two-replicas-of-two"])
def test_uneven_and_empty_shards_of_several_ranks_merge_as_torch_merges_them(programs, tmp_path, world, replicas):
    model = tmp_path / "run" / "checkpoints" / "000010" / "pretrained_model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    torch.multiprocessing.spawn(save_sharded, (world, replicas, 29500 + os.getpid() % 1000, str(model / SHARDS)), nprocs=world)
    assert len(list((model / SHARDS).glob("*.distcp"))) > 1

    ours, _ = read_ours(programs, model / SHARDS, tmp_path)
    assert_equal(ours, read_theirs(model / SHARDS)[0])

    done = convert(programs, model.parent)
    assert done.returncode == 0, done.stderr
    dcp_to_torch_save(model / SHARDS, tmp_path / "merged.pt")
    merged = torch.load(tmp_path / "merged.pt", weights_only=True)["model"]
    assert_equal(safetensors.torch.load_file(model / "model.safetensors"), merged)
    for name, tensor in weights(5).items():
        assert torch.equal(merged[name], tensor), name


def test_the_converted_file_is_what_accelerate_merges(programs, tmp_path):
    from accelerate.utils import merge_fsdp_weights

    for source in (FSDP2, HSDP4):
        model = tmp_path / source.parent.name / "pretrained_model"
        shutil.copytree(source / "pretrained_model", model)
        (model / "model.safetensors").unlink(missing_ok=True)
        done = convert(programs, model)
        assert done.returncode == 0, done.stderr
        merged = tmp_path / f"merged-{source.parent.name}"
        merge_fsdp_weights(str(model / SHARDS), str(merged))
        assert (model / "model.safetensors").read_bytes() == (merged / "model.safetensors").read_bytes()


def test_lerobot_loads_the_converted_checkpoint(programs, tmp_path):
    from lerobot.policies.act.modeling_act import ACTPolicy

    folder = tmp_path / "a run" / "000008"
    shutil.copytree(FSDP2 / "pretrained_model", folder / "pretrained_model")
    (folder / "pretrained_model" / "model.safetensors").unlink()
    done = convert(programs, folder, "--delete_dcp=true")
    assert done.returncode == 0, done.stderr
    assert not (folder / "pretrained_model" / SHARDS).exists()
    state = ACTPolicy.from_pretrained(folder / "pretrained_model").state_dict()
    assert_equal(dict(state), safetensors.torch.load_file(FSDP2 / "pretrained_model" / "model.safetensors"))
