"""Writes tests/data/optim: optimizer steps, gradient clipping, schedules and EMA as torch, LeRobot
and diffusers compute them.

    PYTHON tests/interop/generate_optim.py [OUTPUT_FOLDER]

Needs lerobot 0.6, torch 2.11, safetensors and diffusers (0.39).
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from diffusers.training_utils import EMAModel
from lerobot.optim import optimizers as lerobot_optimizers
from lerobot.optim import schedulers as lerobot_schedulers
from safetensors.torch import save_file

SHAPES = {"a.weight": (3, 5), "a.bias": (37,), "late.weight": (2, 3, 4), "never.weight": (4,), "b.weight": (6, 9)}
FIRST_GROUP = ["a.weight", "a.bias", "late.weight"]
STEPS = 4

OPTIMIZERS = {
    "adamw": lerobot_optimizers.AdamWConfig(lr=1e-2, weight_decay=0.05),
    "adamw_no_decay": lerobot_optimizers.AdamWConfig(lr=1e-3, weight_decay=0.0, eps=1e-6),
    "adam_coupled": lerobot_optimizers.AdamConfig(lr=1e-2, weight_decay=0.1, betas=(0.95, 0.999)),
    "adam_small_betas": lerobot_optimizers.AdamConfig(lr=1e-2, betas=(0.3, 0.5)),
    "sgd": lerobot_optimizers.SGDConfig(lr=0.1),
    "sgd_decay": lerobot_optimizers.SGDConfig(lr=0.1, weight_decay=0.01),
    "sgd_momentum": lerobot_optimizers.SGDConfig(lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    "sgd_nesterov": lerobot_optimizers.SGDConfig(lr=0.1, momentum=0.8, nesterov=True),
}

DIFFUSER = lerobot_schedulers.DiffuserSchedulerConfig
DECAY = lerobot_schedulers.CosineDecayWithWarmupSchedulerConfig
SCHEDULES = [
    (lerobot_schedulers.ConstantWithWarmupSchedulerConfig(num_warmup_steps=5), 20),
    (lerobot_schedulers.ConstantWithWarmupSchedulerConfig(num_warmup_steps=0), 20),
    (lerobot_schedulers.CosineAnnealingWithWarmupSchedulerConfig(num_warmup_steps=3), 20),
    (lerobot_schedulers.CosineAnnealingWithWarmupSchedulerConfig(num_warmup_steps=30), 20),
    (DECAY(num_warmup_steps=4, num_decay_steps=15, peak_lr=1e-3, decay_lr=1e-4), 20),
    (DECAY(num_warmup_steps=50, num_decay_steps=150, peak_lr=2.5e-5, decay_lr=2.5e-6), 20),
    (DECAY(num_warmup_steps=0, num_decay_steps=20, peak_lr=1e-3, decay_lr=0.0), 20),
    *[(DIFFUSER(name=name, num_warmup_steps=warmup), 20)
      for name in ("cosine", "linear", "constant_with_warmup", "cosine_with_restarts", "polynomial")
      for warmup in (0, 6, 40)],
    (DIFFUSER(name="constant"), 20),
    (lerobot_schedulers.VQBeTSchedulerConfig(num_warmup_steps=3, num_vqvae_training_steps=7), 20),
    (lerobot_schedulers.VQBeTSchedulerConfig(num_warmup_steps=0, num_vqvae_training_steps=0, num_cycles=1.5), 20),
]


def make_parameters(generator):
    return {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator) * 0.3) for name, shape in SHAPES.items()
    }


def groups_of(parameters, second_lr):
    return [
        {"params": [parameters[name] for name in FIRST_GROUP]},
        {"params": [p for name, p in parameters.items() if name not in FIRST_GROUP], "lr": second_lr},
    ]


def run_optimizers(folder):
    tensors, groups = {}, {}
    parameters = make_parameters(torch.Generator().manual_seed(1))
    for name, parameter in parameters.items():
        tensors[f"initial/{name}"] = parameter.detach().clone()
    generator = torch.Generator().manual_seed(2)
    for step in range(STEPS):
        for name, shape in SHAPES.items():
            if name == "never.weight" or (name == "late.weight" and step < 2):
                continue
            tensors[f"gradient/{step}/{name}"] = torch.randn(shape, generator=generator) * 0.1
    for case, config in OPTIMIZERS.items():
        parameters = make_parameters(torch.Generator().manual_seed(1))
        optimizer = config.build(groups_of(parameters, second_lr=config.lr / 4))
        for step in range(STEPS):
            for name, parameter in parameters.items():
                gradient = tensors.get(f"gradient/{step}/{name}")
                parameter.grad = None if gradient is None else gradient.clone()
            optimizer.step()
            for name, parameter in parameters.items():
                tensors[f"{case}/{step}/{name}"] = parameter.detach().clone()
        state = optimizer.state_dict()
        groups[case] = {"config": {"type": config.type, **asdict(config)}, "param_groups": state["param_groups"]}
        for number, entries in state["state"].items():
            for key, value in entries.items():
                tensors[f"{case}/state/{number}/{key}"] = value.clone()
    for label, max_norm in (("clipped", 0.5), ("whole", 50.0)):
        parameters = make_parameters(torch.Generator().manual_seed(1))
        for name, parameter in parameters.items():
            gradient = tensors.get(f"gradient/3/{name}")
            parameter.grad = None if gradient is None else gradient.clone()
        tensors[f"{label}/norm"] = torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                tensors[f"{label}/gradient/{name}"] = parameter.grad
    save_file(tensors, folder / "optimizers.safetensors")
    (folder / "optimizers.json").write_text(json.dumps(groups, indent=1))


def run_schedules(folder):
    cases = []
    for config, steps in SCHEDULES:
        parameters = make_parameters(torch.Generator().manual_seed(1))
        optimizer = torch.optim.AdamW(groups_of(parameters, second_lr=3e-5), lr=1e-3)
        scheduler = config.build(optimizer, steps)
        rates = []
        for step in range(steps + 5):
            rates.append([group["lr"] for group in optimizer.param_groups])
            if step == 7:
                state = json.loads(json.dumps(scheduler.state_dict()))
                groups = [
                    {key: value for key, value in group.items() if key != "params"}
                    for group in optimizer.state_dict()["param_groups"]
                ]
            optimizer.step()
            scheduler.step()
        cases.append(
            {
                "config": {"type": config.type, **asdict(config)},
                "steps": steps,
                "lr": rates,
                "state_at_7": state,
                "groups_at_7": groups,
            }
        )
    (folder / "schedules.json").write_text(json.dumps(cases, indent=1))


def run_diffusion_rates(folder):
    """Rates of the diffusion policy's scheduler at some steps, as "name/warmup<w>/steps<n>"."""
    runs = [("cosine", 500, 100000), ("cosine", 500, 2000), ("cosine", 500, 20), ("cosine", 0, 10)]
    runs += [(name, 5, 20)
             for name in ("cosine", "linear", "cosine_with_restarts", "polynomial", "constant_with_warmup")]
    rates = {}
    for name, warmup, steps in [*runs, ("constant", None, 20)]:
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        scheduler = DIFFUSER(name=name, num_warmup_steps=warmup).build(optimizer, steps)
        pairs = rates[f"{name}/warmup{warmup}/steps{steps}"] = []
        for step in range(steps + 3):
            if step <= 20 or step % 997 == 0 or abs(step - steps) < 3 or abs(step - (warmup or 0)) < 2:
                pairs.append([step, optimizer.param_groups[0]["lr"]])
            optimizer.step()
            scheduler.step()
    (folder / "diffusion_rates.json").write_text(json.dumps(rates))


def run_ema(folder):
    tensors, decays = {}, {}
    settings = {
        "warmup": dict(decay=0.9999, use_ema_warmup=True, power=0.75),
        "late": dict(decay=0.6, min_decay=0.1, use_ema_warmup=True, power=0.9, inv_gamma=2.0, update_after_step=2),
        "constant": dict(decay=0.95, min_decay=0.95, use_ema_warmup=True, power=0.75),
    }
    for case, arguments in settings.items():
        parameters = make_parameters(torch.Generator().manual_seed(1))
        parameters["never.weight"].requires_grad_(False)
        average = EMAModel(list(parameters.values()), **arguments)
        generator = torch.Generator().manual_seed(3)
        decays[case] = {"arguments": arguments, "decay": []}
        for _ in range(6):
            with torch.no_grad():
                for parameter in parameters.values():
                    parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
            average.step(list(parameters.values()))
            decays[case]["decay"].append(average.cur_decay_value)
        state = average.state_dict()
        for name, shadow, parameter in zip(SHAPES, state.pop("shadow_params"), parameters.values(), strict=True):
            tensors[f"{case}/shadow/{name}"] = shadow
            tensors[f"{case}/parameter/{name}"] = parameter.detach()
        decays[case]["state"] = state
    generator = torch.Generator().manual_seed(3)
    for step in range(6):
        for name, shape in SHAPES.items():
            tensors[f"change/{step}/{name}"] = torch.randn(shape, generator=generator) * 0.1
    save_file(tensors, folder / "ema.safetensors")
    (folder / "ema.json").write_text(json.dumps(decays, indent=1))


if __name__ == "__main__":
    output = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "data" / "optim")
    output.mkdir(parents=True, exist_ok=True)
    run_optimizers(output)
    run_schedules(output)
    run_diffusion_rates(output)
    run_ema(output)
