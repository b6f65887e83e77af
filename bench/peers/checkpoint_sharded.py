"""Saves and loads a model of argv[1] parameters (times four with Adam's state) that fully_shard divides over the ranks. Started by
torchrun; argv: form (dcp or gathered), width of the model, folder. Prints the seconds of each as JSON."""

import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTDecoderLayer, ACTEncoderLayer, ACTPolicy
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard


def main() -> None:
    form, width, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    dist.init_process_group("gloo")
    config = ACTConfig(
        input_features={"observation.state": PolicyFeature(FeatureType.STATE, (2,)), "observation.environment_state": PolicyFeature(FeatureType.ENV, (2,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
        dim_model=width,
        dim_feedforward=4 * width,
        device="cpu",
    )
    policy = ACTPolicy(config)
    for module in policy.modules():
        if isinstance(module, (ACTEncoderLayer, ACTDecoderLayer)):
            fully_shard(module)
    fully_shard(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    for parameter in policy.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    parameters = sum(p.numel() for p in policy.parameters())

    dist.barrier()
    began = time.monotonic()
    if form == "dcp":
        dcp.save({"model": get_model_state_dict(policy)}, checkpoint_id=folder / "model")
    else:
        whole = get_model_state_dict(policy, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if dist.get_rank() == 0:
            folder.mkdir(parents=True)
            save_file({name: tensor.clone() for name, tensor in whole.items()}, folder / "model.safetensors")
        del whole
    dcp.save({"optimizer": get_optimizer_state_dict(policy, optimizer)}, checkpoint_id=folder / "optimizer")
    dist.barrier()
    save_s = time.monotonic() - began

    began = time.monotonic()
    if form == "dcp":
        state = {"model": get_model_state_dict(policy)}
        dcp.load(state, checkpoint_id=folder / "model")
    state = {"optimizer": get_optimizer_state_dict(policy, optimizer)}
    dcp.load(state, checkpoint_id=folder / "optimizer")
    dist.barrier()
    load_s = time.monotonic() - began
    if dist.get_rank() == 0:
        print(json.dumps({"parameters": parameters, "save_s": save_s, "load_s": load_s}), flush=True)
    dist.destroy_process_group()


main()
