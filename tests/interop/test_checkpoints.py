"""LeRobot, torch and safetensors open what we write, and find in it what LeRobot itself would have written."""

import json
import random
import re

import numpy
import pytest
import safetensors.torch
import torch

from trainer import RUN, TINY_ACT, dataset

FLAGS = {**dataset("toy_state"), **TINY_ACT, **RUN, "steps": 12, "save_freq": 8}
WITHOUT_VAE = {**FLAGS, "policy.use_vae": "false"}
CAMERAS = {**dataset("toy_h264"), **TINY_ACT, **RUN, "steps": 4, "save_freq": 2, "policy.use_vae": "false"}
STREAMED = {**FLAGS, "dataset.streaming": "true", "num_workers": 2}
SCHEDULED = {
    **FLAGS,
    "use_policy_training_preset": "false",
    "optimizer.type": "adamw",
    "optimizer.lr": 1e-3,
    "scheduler.type": "cosine_decay_with_warmup",
    "scheduler.peak_lr": 1e-3,
    "scheduler.decay_lr": 1e-4,
    "scheduler.num_warmup_steps": 2,
    "scheduler.num_decay_steps": 100,
}


def read_tensors(path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(path)


def assert_tensors_agree(ours, theirs, **tolerance):
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def header(path) -> dict:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length))


@pytest.mark.parametrize("flags", [FLAGS, CAMERAS, SCHEDULED], ids=["state", "cameras", "scheduled"])
def test_the_same_files_lie_in_a_checkpoint(runs, flags):
    def files(run):
        folder = run.checkpoint(flags["steps"])
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert files(ours) == files(theirs)
    assert sorted(path.name for path in (ours.output / "checkpoints").iterdir()) == sorted(
        path.name for path in (theirs.output / "checkpoints").iterdir()
    )
    last = ours.output / "checkpoints" / "last"
    assert last.is_symlink() and str(last.readlink()) == f"{flags['steps']:06d}"


@pytest.mark.parametrize("flags", [FLAGS, CAMERAS, SCHEDULED], ids=["state", "cameras", "scheduled"])
@pytest.mark.parametrize("file", ["config.json", "policy_preprocessor.json", "policy_postprocessor.json"])
def test_policy_and_processor_files_are_equal_to_the_byte(runs, flags, file):
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    step = flags["steps"]
    assert (ours.model(step) / file).read_text() == (theirs.model(step) / file).read_text()


@pytest.mark.parametrize("flags", [FLAGS, CAMERAS, SCHEDULED], ids=["state", "cameras", "scheduled"])
def test_lerobot_reads_our_train_config_as_its_own(runs, flags):
    from lerobot.configs.train import TrainPipelineConfig

    step = flags["steps"]
    ours = TrainPipelineConfig.from_pretrained(runs.ours(**flags).model(step)).to_dict()
    theirs = TrainPipelineConfig.from_pretrained(runs.theirs(**flags).model(step)).to_dict()
    del ours["output_dir"], theirs["output_dir"]
    assert ours == theirs


@pytest.mark.parametrize("flags", [FLAGS, WITHOUT_VAE, CAMERAS], ids=["state", "without VAE", "cameras"])
def test_weights_agree(runs, flags):
    step = flags["steps"]
    ours, theirs = runs.ours(**flags).model(step), runs.theirs(**flags).model(step)
    our_header, their_header = header(ours / "model.safetensors"), header(theirs / "model.safetensors")
    # LeRobot 0.6.1 leaves this out, its successor writes it; transformers and others insist on it.
    assert our_header.pop("__metadata__") == {"format": "pt"}
    assert list(our_header.items()) == [entry for entry in their_header.items() if entry[0] != "__metadata__"]
    # Adam divides by the square root of tiny second moments: a difference in the last digit of a gradient near zero moves a
    # weight by up to the learning rate (1e-5) a step.
    assert_tensors_agree(
        read_tensors(ours / "model.safetensors"), read_tensors(theirs / "model.safetensors"), rtol=1e-4, atol=1e-5 * step
    )


@pytest.mark.parametrize("flags", [FLAGS, CAMERAS], ids=["state", "cameras"])
def test_normalisation_statistics_are_equal(runs, flags):
    step = flags["steps"]
    ours, theirs = runs.ours(**flags).model(step), runs.theirs(**flags).model(step)
    for file in sorted(path.name for path in theirs.glob("policy_*.safetensors")):
        assert_tensors_agree(read_tensors(ours / file), read_tensors(theirs / file), rtol=0, atol=0)


@pytest.mark.parametrize("flags", [FLAGS, SCHEDULED, CAMERAS], ids=["preset", "scheduled", "cameras"])
def test_optimizer_state_agrees(runs, flags):
    step = flags["steps"]
    ours, theirs = (side(**flags).checkpoint(step) / "training_state" for side in (runs.ours, runs.theirs))
    our_groups, their_groups = (json.loads((folder / "optimizer_param_groups.json").read_text()) for folder in (ours, theirs))
    assert our_groups == their_groups
    # LeRobot's reader compares types as well: 0 is no float.
    assert [[type(value) for value in group.values()] for group in our_groups] == [
        [type(group[name]) for name in ours_group] for group, ours_group in zip(their_groups, our_groups, strict=True)
    ]
    our_state, their_state = (read_tensors(folder / "optimizer_state.safetensors") for folder in (ours, theirs))
    assert our_state.keys() == their_state.keys()
    for name, tensor in their_state.items():
        assert our_state[name].shape == tensor.shape and our_state[name].dtype == tensor.dtype, name
        # Some gradients are zero but for rounding, such as those of attention's key biases: only their size can be compared.
        assert (our_state[name] - tensor).norm() <= 1e-3 * tensor.norm() + 1e-8, name


def test_scheduler_state_agrees(runs):
    ours, theirs = (
        json.loads((side(**SCHEDULED).checkpoint(12) / "training_state/scheduler_state.json").read_text())
        for side in (runs.ours, runs.theirs)
    )
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert type(ours[name]) is type(value), name
        assert ours[name] == (pytest.approx(value, rel=1e-12) if name in ("base_lrs", "_last_lr") else value), name


def test_random_states_are_equal(runs):
    ours, theirs = (
        read_tensors(side(**FLAGS).checkpoint(8) / "training_state/rng_state.safetensors") for side in (runs.ours, runs.theirs)
    )
    assert_tensors_agree(ours, theirs, rtol=0, atol=0)


def test_lerobot_restores_our_random_states(runs):
    from lerobot.utils.random_utils import load_rng_state

    def draws(run):
        load_rng_state(run.checkpoint(8) / "training_state")
        return random.random(), numpy.random.rand(), torch.rand(3).tolist()

    assert draws(runs.ours(**FLAGS)) == draws(runs.theirs(**FLAGS))


def test_training_step_has_what_lerobot_looks_for(runs):
    from lerobot.common.train_utils import load_training_batch_size, load_training_step

    checkpoint = runs.ours(**FLAGS).checkpoint(8)
    assert load_training_step(checkpoint / "training_state") == 8
    assert load_training_batch_size(checkpoint) == 4


@pytest.mark.parametrize("flags", [FLAGS, CAMERAS], ids=["state", "cameras"])
def test_safetensors_opens_every_file(runs, flags):
    files = sorted(runs.ours(**flags).output.rglob("*.safetensors"))
    assert files
    for file in files:
        with safetensors.safe_open(file, framework="pt") as opened:
            assert all(opened.get_tensor(name) is not None for name in opened.keys())


@pytest.mark.parametrize("flags", [FLAGS, WITHOUT_VAE, CAMERAS], ids=["state", "without VAE", "cameras"])
def test_our_checkpoint_acts_like_lerobots(runs, flags):
    from peer import LoadedPolicy

    step, rows = flags["steps"], [0, 5, 20, 42]
    ours, theirs = (LoadedPolicy(side(**flags).model(step)) for side in (runs.ours, runs.theirs))
    torch.testing.assert_close(ours.actions(rows), theirs.actions(rows), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("flags", [WITHOUT_VAE, CAMERAS], ids=["state", "cameras"])
def test_lerobot_finds_the_loss_that_we_trained_on(runs, flags):
    """LeRobot with our weights of step n has, on the batch of step n + 1, the loss that we logged there."""
    from peer import LoadedPolicy

    run, step = runs.ours(**flags), flags["save_freq"]
    policy = LoadedPolicy(run.model(step))
    after = run.steps[step]
    assert after["step"] == step + 1
    assert policy.loss(after["index"], training=True) == pytest.approx(after["loss"], rel=1e-5)


@pytest.mark.parametrize("flags", [FLAGS, CAMERAS], ids=["VAE", "cameras"])
def test_lerobot_finds_our_held_out_loss(runs, flags):
    """The network in evaluation mode, as for actions: the same loss over the held-out episodes from our saved weights."""
    from peer import LoadedPolicy

    step = flags["steps"]
    run = runs.ours(**{**flags, "dataset.eval_split": 0.3, "eval_steps": step})
    [logged] = re.findall(rf"step {step}: eval_loss=([\d.]+)", run.log)
    policy = LoadedPolicy(run.model(step))
    rows, size = range(len(policy.eval_dataset)), flags["batch_size"]
    losses = [
        policy.loss(rows[first : first + size], training=False, dataset=policy.eval_dataset) for first in range(0, len(rows), size)
    ]
    assert sum(losses) / len(losses) == pytest.approx(float(logged), abs=1e-4)


def test_ema_files_open_in_torch_and_diffusers(runs):
    """The moving average of the weights of steps 1 to 4 is what diffusers' EMAModel makes of them."""
    from diffusers.training_utils import EMAModel

    steps = 4
    flags = {**FLAGS, "steps": steps, "save_freq": 1, "ema.enable": "true"}
    run = runs.ours(**flags)
    names = parameter_names(run.model(1))
    weights = [read_tensors(run.model(step) / "model.safetensors") for step in range(1, steps + 1)]
    live = [torch.nn.Parameter(weights[0][name].clone()) for name in names]
    average = EMAModel(live, decay=0.9999, use_ema_warmup=True, inv_gamma=1.0, power=0.75)
    for step in range(steps):
        for parameter, name in zip(live, names, strict=True):
            parameter.data.copy_(weights[step][name])
        average.step(live)

    state = torch.load(run.checkpoint(steps) / "training_state/ema_state.pt", weights_only=True)
    expected = average.state_dict()
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        if name != "shadow_params":
            assert state[name] == value and type(state[name]) is type(value), name
    for ours, theirs, name in zip(state["shadow_params"], expected["shadow_params"], names, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}")

    EMAModel(live).load_state_dict(state)
    averaged = read_tensors(run.checkpoint(steps) / "pretrained_model_ema/model.safetensors")
    for name, shadow in zip(names, state["shadow_params"], strict=True):
        assert torch.equal(averaged[name], shadow), name


def parameter_names(folder) -> list[str]:
    """In the order of the policy's parameters. LeRobot 0.6.1 knows no EMA, so it can't read that run's train_config.json."""
    from lerobot.policies.act.modeling_act import ACTPolicy

    return [name for name, _ in ACTPolicy.from_pretrained(folder).named_parameters()]


def test_lerobot_opens_the_checkpoint_of_a_streamed_run(runs):
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    run = runs.ours(**STREAMED)
    config = TrainPipelineConfig.from_pretrained(run.model(12))
    assert config.dataset.streaming and config.num_workers == 2
    policy = ACTPolicy.from_pretrained(run.model(12))
    written = read_tensors(run.model(12) / "model.safetensors")
    assert_tensors_agree(policy.state_dict(), written, rtol=0, atol=0)
