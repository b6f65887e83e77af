"""Trains LeRobot's default ACT under torch's DistributedDataParallel or fully_shard on made-up batches: argv is DDP or FSDP, and the
number of steps. Started by torchrun."""

import sys

import torch
import torch.distributed as dist
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTDecoderLayer, ACTEncoderLayer, ACTPolicy
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

BATCH = 4


def make_batch(config: ACTConfig) -> dict[str, torch.Tensor]:
    return {
        "observation.state": torch.randn(BATCH, 2),
        "observation.images.top": torch.rand(BATCH, 3, 96, 96),
        "action": torch.randn(BATCH, config.chunk_size, 2),
        "action_is_pad": torch.zeros(BATCH, config.chunk_size, dtype=torch.bool),
    }


def main() -> None:
    layout, steps = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(1000)
    config = ACTConfig(
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (2,)),
            "observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, 96, 96)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
        device="cpu",
        pretrained_backbone_weights=None,
    )
    policy = ACTPolicy(config).train()
    groups = policy.get_optim_params()
    if layout == "FSDP":
        names = {parameter: name for name, parameter in policy.named_parameters()}
        by_name = [{**group, "params": [names[p] for p in group["params"]]} for group in groups]
        for module in policy.modules():
            if isinstance(module, (ACTEncoderLayer, ACTDecoderLayer)):
                fully_shard(module)
        model = fully_shard(policy)
        sharded = dict(model.named_parameters())
        groups = [{**group, "params": [sharded[name] for name in group["params"]]} for group in by_name]
    else:
        model = DistributedDataParallel(policy, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(groups, lr=1e-5, weight_decay=1e-4)

    for step in range(steps):
        loss, _ = model(make_batch(config))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
