"""The same flags train the same run: order of samples, losses and gradient norms agree step by step."""

import json
import re

import pytest

from trainer import RUN, TINY_ACT, dataset

OPTIMIZER_BY_HAND = {
    "use_policy_training_preset": "false",
    "optimizer.type": "adamw",
    "optimizer.lr": 1e-3,
    "optimizer.weight_decay": 0.01,
    "optimizer.grad_clip_norm": 10.0,
    "scheduler.type": "cosine_decay_with_warmup",
    "scheduler.peak_lr": 1e-3,
    "scheduler.decay_lr": 1e-4,
    "scheduler.num_warmup_steps": 2,
    "scheduler.num_decay_steps": 100,
}


def with_scheduler(kind: str, **options) -> dict:
    flags = {name: value for name, value in OPTIMIZER_BY_HAND.items() if not name.startswith("scheduler.")}
    return {**flags, "scheduler.type": kind, **{f"scheduler.{name}": value for name, value in options.items()}}


# Dataset, steps, flags beside the common ones. 63 frames and batches of 4: toy_state's second epoch begins at step 17.
CASES = {
    "plain": ("toy_state", 20, {}),
    "without VAE": ("toy_state", 8, {"policy.use_vae": "false"}),
    "pre-norm and GELU": ("toy_state", 6, {"policy.pre_norm": "true", "policy.feedforward_activation": "gelu"}),
    "deeper decoder": ("toy_state", 4, {"policy.n_decoder_layers": 3, "policy.kl_weight": 1.0}),
    "other seed": ("toy_state", 6, {"seed": 7}),
    "chosen episodes": ("toy_state", 10, {"dataset.episodes": "[0,2,4]"}),
    "min-max and identity normalisation": (
        "toy_state",
        6,
        {"policy.normalization_mapping": '{"STATE": "MIN_MAX", "ENV": "IDENTITY", "ACTION": "MIN_MAX"}'},
    ),
    "quantile normalisation": (
        "toy_state",
        6,
        {"policy.normalization_mapping": '{"STATE": "QUANTILES", "ENV": "QUANTILE10", "ACTION": "QUANTILES"}'},
    ),
    "learning rates of the preset": (
        "toy_state",
        6,
        {"policy.optimizer_lr": 1e-3, "policy.optimizer_weight_decay": 0.1, "policy.optimizer_lr_backbone": 1e-4},
    ),
    "cosine decay with warm-up": ("toy_state", 6, OPTIMIZER_BY_HAND),
    "constant with warm-up": ("toy_state", 6, with_scheduler("constant_with_warmup", num_warmup_steps=3)),
    "cosine annealing with warm-up": ("toy_state", 6, with_scheduler("cosine_annealing_with_warmup", num_warmup_steps=2)),
    "diffuser": ("toy_state", 6, with_scheduler("diffuser", name="cosine", num_warmup_steps=2)),
    "vqbet": (
        "toy_state",
        6,
        with_scheduler("vqbet", num_warmup_steps=1, num_vqvae_training_steps=2, num_cycles=0.5),
    ),
    "Adam": ("toy_state", 6, {**OPTIMIZER_BY_HAND, "optimizer.type": "adam"}),
    "SGD with momentum": (
        "toy_state",
        6,
        {**OPTIMIZER_BY_HAND, "optimizer.type": "sgd", "optimizer.momentum": 0.9, "optimizer.nesterov": "true"},
    ),
    "two H.264 cameras": ("toy_h264", 6, {}),
    "AV1 camera": ("toy_av1", 3, {}),
    "files that roll over": ("toy_split", 6, {}),
    "own image statistics": ("toy_h264", 2, {"dataset.use_imagenet_stats": "false"}),
    "ResNet 34": ("toy_av1", 2, {"policy.vision_backbone": "resnet34"}),
    "ResNet 50 with dilation": (
        "toy_av1",
        2,
        {"policy.vision_backbone": "resnet50", "policy.replace_final_stride_with_dilation": "true"},
    ),
    # Without a VAE: LeRobot's loader works one batch ahead, so its transforms draw before the noise of the step in between.
    "image transforms": ("toy_av1", 3, {"dataset.image_transforms.enable": "true", "policy.use_vae": "false"}),
}


@pytest.mark.parametrize("case", CASES)
def test_runs_agree_step_by_step(runs, case):
    name, steps, more = CASES[case]
    flags = {**dataset(name), **TINY_ACT, **RUN, "steps": steps, "save_checkpoint": "false", **more}
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert [step["step"] for step in ours.steps] == list(range(1, steps + 1))
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
    assert ours.grad_norms == pytest.approx(theirs.grad_norms, rel=1e-4)


def test_decode_threads_do_not_change_the_run(runs):
    flags = {**dataset("toy_h264"), **TINY_ACT, **RUN, "steps": 6, "save_checkpoint": "false"}
    theirs, ours = runs.theirs(**flags), runs.ours(**{**flags, "num_workers": 3, "prefetch_factor": 2})
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)


def test_held_out_loss_agrees(runs):
    flags = {
        **dataset("toy_state"),
        **TINY_ACT,
        **RUN,
        "steps": 8,
        "save_checkpoint": "false",
        "dataset.eval_split": 0.3,
        "eval_steps": 4,
    }
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.indices == theirs.indices
    assert held_out_losses(ours.log) == pytest.approx(held_out_losses(theirs.log), abs=2e-4)
    assert [step for step, _ in re.findall(r"step (\d+): eval_loss=([\d.]+)", ours.log)] == ["4", "8"]


def test_capped_held_out_loss_agrees(runs):
    flags = {
        **dataset("toy_h264"),
        **TINY_ACT,
        **RUN,
        "steps": 2,
        "save_checkpoint": "false",
        "dataset.eval_split": 0.3,
        "eval_steps": 2,
        "max_eval_samples": 10,
    }
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert held_out_losses(ours.log) == pytest.approx(held_out_losses(theirs.log), abs=2e-4)


def held_out_losses(log: str) -> list[float]:
    found = [float(loss) for loss in re.findall(r"step \d+: eval_loss=([\d.]+)", log)]
    assert found, log
    return found


def progress(log: str) -> list[tuple]:
    """What a log line says up to the learning rate. Times are a machine's own."""
    pattern = r"step:(\S+) smpl:(\S+) ep:(\S+) epch:(\S+) loss:(\S+) grdn:(\S+) lr:(\S+)"
    return re.findall(pattern, log)


def test_log_lines_say_the_same(runs):
    flags = {**dataset("toy_state"), **TINY_ACT, **RUN, "steps": 20, "save_checkpoint": "false", "log_freq": 5}
    ours, theirs = progress(runs.ours(**flags).log), progress(runs.theirs(**flags).log)
    assert len(ours) == 4
    for our_line, their_line in zip(ours, theirs, strict=True):
        assert our_line[:4] == their_line[:4]
        assert float(our_line[4]) == pytest.approx(float(their_line[4]), abs=0.002)
        assert float(our_line[5]) == pytest.approx(float(their_line[5]), rel=1e-4, abs=0.002)
        assert our_line[6] == their_line[6]


def test_metrics_file_has_the_averages_of_the_log_lines(runs):
    flags = {**dataset("toy_state"), **TINY_ACT, **RUN, "steps": 20, "save_checkpoint": "false", "log_freq": 5}
    run = runs.ours(**flags)
    metrics = [json.loads(line) for line in (run.output / "metrics.jsonl").read_text().splitlines()]
    metrics = [line for line in metrics if "loss" in line]
    assert [line["step"] for line in metrics] == [5, 10, 15, 20]
    for line, first in zip(metrics, (0, 5, 10, 15), strict=True):
        assert line["loss"] == pytest.approx(sum(run.losses[first : first + 5]) / 5, rel=1e-6)
        assert line["l1_loss"] + 10.0 * line["kld_loss"] == pytest.approx(line["loss"], rel=1e-5)
        assert {"grdn", "lr", "data_s", "updt_s", "step_s", "samples_per_s"} <= line.keys()
