"""The diffusion policy: the same runs, and checkpoints that either side takes for its own."""

import json

import pytest
import safetensors.torch
import torch

from test_resume import resume
from test_training import held_out_losses
from trainer import RUN, TINY_DIFFUSION, dataset

STATES = {**dataset("toy_state"), **TINY_DIFFUSION, **RUN, "steps": 12, "save_freq": 4}
CAMERA = {**dataset("toy_av1"), **TINY_DIFFUSION, **RUN, "steps": 4, "save_freq": 2, "policy.crop_shape": "[84,80]"}
GROUPS = {**CAMERA, "policy.use_group_norm": "true"}

# Dataset, steps, flags beside the common ones, relative tolerance. 28 of toy_state's 63 frames are sampled: its second epoch begins at step 8.
CASES = {
    "two epochs": ("toy_state", 12, {}, 1e-5),
    "predicts actions, other noise": (
        "toy_state",
        6,
        {"policy.prediction_type": "sample", "policy.beta_schedule": "linear", "policy.num_train_timesteps": 50},
        1e-5,
    ),
    "scaled linear": ("toy_state", 3, {"policy.beta_schedule": "scaled_linear"}, 1e-5),
    "sigmoid": ("toy_state", 3, {"policy.beta_schedule": "sigmoid"}, 1e-5),
    "laplace": ("toy_state", 3, {"policy.beta_schedule": "laplace"}, 1e-5),
    "one observation, padding left out": (
        "toy_state",
        6,
        {"policy.n_obs_steps": 1, "policy.do_mask_loss_for_padding": "true", "policy.drop_n_last_frames": 0},
        1e-5,
    ),
    "three observations, no scale": ("toy_state", 6, {"policy.n_obs_steps": 3, "policy.use_film_scale_modulation": "false"}, 1e-5),
    "one level": ("toy_state", 3, {"policy.down_dims": "[16]", "policy.kernel_size": 3}, 1e-5),
    "recomputed blocks": ("toy_state", 4, {"policy.gradient_checkpointing": "true"}, 1e-5),
    "preset by hand": ("toy_state", 6, {"policy.scheduler_name": "linear", "policy.optimizer_weight_decay": 0.1}, 1e-5),
    "group normalisation": ("toy_av1", 4, {"policy.use_group_norm": "true", "policy.crop_shape": "[84,80]"}, 1e-4),
    "batch normalisation": ("toy_av1", 3, {"policy.crop_shape": "[84,80]"}, 1e-4),
    "one observation of a camera": ("toy_av1", 2, {"policy.n_obs_steps": 1, "policy.use_group_norm": "true"}, 1e-4),
    "two encoders, resized": ("toy_h264", 2, {"policy.resize_shape": "[80,88]", "policy.crop_ratio": 0.9}, 1e-4),
    "one encoder for two cameras": ("toy_h264", 2, {"policy.use_separate_rgb_encoder_per_camera": "false"}, 1e-4),
}


def read_tensors(path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(path)


def largest_difference(ours: dict, theirs: dict) -> float:
    assert ours.keys() == theirs.keys()
    return max((ours[name].double() - tensor.double()).abs().max().item() for name, tensor in theirs.items())


@pytest.mark.parametrize("case", CASES)
def test_runs_agree_step_by_step(runs, case):
    name, steps, more, tolerance = CASES[case]
    flags = {**dataset(name), **TINY_DIFFUSION, **RUN, "steps": steps, "save_checkpoint": "false", **more}
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=tolerance)
    assert ours.grad_norms == pytest.approx(theirs.grad_norms, rel=10 * tolerance)


def test_held_out_loss_draws_its_noise_from_the_same_generator(runs):
    flags = {**STATES, "steps": 8, "save_checkpoint": "false", "dataset.eval_split": 0.3, "eval_steps": 4}
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-5)
    assert held_out_losses(ours.log) == pytest.approx(held_out_losses(theirs.log), abs=2e-4)


@pytest.mark.parametrize("flags", [STATES, CAMERA, GROUPS], ids=["states", "batch norm", "group norm"])
def test_a_checkpoint_has_lerobots_files_and_weights(runs, flags):
    ours, theirs = (side(**flags).checkpoint(flags["steps"]) for side in (runs.ours, runs.theirs))

    def files(folder):
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    assert files(ours) == files(theirs)
    for file in ("config.json", "policy_preprocessor.json", "policy_postprocessor.json"):
        assert (ours / "pretrained_model" / file).read_text() == (theirs / "pretrained_model" / file).read_text()
    for file in ("optimizer_param_groups.json", "scheduler_state.json"):
        assert json.loads((ours / "training_state" / file).read_text()) == json.loads((theirs / "training_state" / file).read_text()), file
    weights = [read_tensors(folder / "pretrained_model" / "model.safetensors") for folder in (ours, theirs)]
    assert list(weights[0]) == list(weights[1])
    # Adam makes a full step of a gradient that is nothing but rounding, such as that of the softmax's bias.
    assert largest_difference(*weights) <= 2.1e-3 * flags["steps"]


@pytest.mark.parametrize("flags", [STATES, CAMERA, GROUPS], ids=["states", "batch norm", "group norm"])
def test_lerobot_loads_our_checkpoint_and_finds_the_same_loss_and_actions(runs, flags):
    import peer

    step = flags["save_freq"]
    ours, theirs = (peer.LoadedPolicy(side(**flags).model(step)) for side in (runs.ours, runs.theirs))
    rows = [2, 5, 11]

    def seeded(result):
        torch.manual_seed(3)
        return result()

    for training in (False, True):
        loss = [seeded(lambda p=p: p.loss(rows, training=training)) for p in (ours, theirs)]
        assert loss[0] == pytest.approx(loss[1], rel=1e-3)
    actions = [seeded(lambda p=p: p.actions(rows)) for p in (ours, theirs)]
    assert actions[0].shape == (3, 4, 3)
    torch.testing.assert_close(actions[0], actions[1], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("flags", [STATES, GROUPS], ids=["states", "camera"])
def test_ours_continues_lerobots_run_as_if_it_had_not_stopped(runs, flags):
    theirs, step = runs.theirs(**flags), flags["save_freq"]
    resumed = runs.ours(**resume(theirs.checkpoint(step), flags["steps"]))
    assert resumed.indices == theirs.indices[step:]
    assert resumed.losses == pytest.approx(theirs.losses[step:], rel=1e-4)


@pytest.mark.parametrize("flags", [STATES, CAMERA], ids=["states", "batch norm"])
def test_ours_continues_its_own_run_as_if_it_had_not_stopped(runs, flags):
    ours, step = runs.ours(**flags), flags["save_freq"]
    resumed = runs.ours(**resume(ours.checkpoint(step), flags["steps"]))
    assert resumed.indices == ours.indices[step:]
    assert resumed.losses == pytest.approx(ours.losses[step:], rel=1e-5)


def test_lerobot_continues_our_run_as_it_continues_its_own(runs):
    """LeRobot's noise is shifted by one draw after any resume, from either side's checkpoint alike."""
    ours = runs.theirs(**resume(runs.ours(**STATES).checkpoint(4), 8))
    theirs = runs.theirs(**resume(runs.theirs(**STATES).checkpoint(4), 8))
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)


def test_a_new_run_from_lerobots_weights_agrees(runs):
    start = runs.theirs(**GROUPS).model(2)
    without = ("policy.type",)
    flags = {name: value for name, value in GROUPS.items() if name not in without}
    flags |= {"policy.path": start, "steps": 2, "save_checkpoint": "false"}
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)


# --- The exponential moving average ---


def test_the_moving_average_is_that_of_diffusers(runs):
    """Replayed over the weights after every step, and read back by diffusers' own class."""
    from diffusers.training_utils import EMAModel
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    flags = {**STATES, "steps": 5, "save_freq": 1, "ema.enable": "true"}
    run = runs.ours(**flags)
    names = [name for name, _ in DiffusionPolicy.from_pretrained(run.model(1)).named_parameters()]

    def parameters(step):
        weights = read_tensors(run.model(step) / "model.safetensors")
        return [torch.nn.Parameter(weights[name]) for name in names]

    average = EMAModel(parameters(1), use_ema_warmup=True, inv_gamma=1.0, power=0.75)
    for step in range(1, 6):
        average.step(parameters(step))
        saved = torch.load(run.checkpoint(step) / "training_state" / "ema_state.pt", weights_only=True)
        assert saved["optimization_step"] == step
        for ours, theirs in zip(saved["shadow_params"], average.shadow_params, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    average.load_state_dict(saved)


def test_the_averaged_model_has_the_live_statistics_and_loads_in_lerobot(runs):
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    flags = {**CAMERA, "ema.enable": "true"}
    run = runs.ours(**flags)
    live = read_tensors(run.model(4) / "model.safetensors")
    averaged = read_tensors(run.checkpoint(4) / "pretrained_model_ema" / "model.safetensors")
    state = torch.load(run.checkpoint(4) / "training_state" / "ema_state.pt", weights_only=True)
    policy = DiffusionPolicy.from_pretrained(run.checkpoint(4) / "pretrained_model_ema")
    for (name, parameter), shadow in zip(policy.named_parameters(), state["shadow_params"], strict=True):
        assert torch.equal(parameter, shadow), name
        assert torch.equal(averaged[name], shadow), name
    for name, buffer in policy.named_buffers():
        assert torch.equal(buffer, live[name]), name
        assert torch.equal(averaged[name], live[name]), name
    # The average does not change the run.
    assert run.losses == runs.ours(**CAMERA).losses
