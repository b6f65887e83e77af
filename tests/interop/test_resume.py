"""Either side goes on from the other's checkpoint."""

import shutil

import pytest

from trainer import RUN, TINY_ACT, dataset

FLAGS = {**dataset("toy_state"), **TINY_ACT, **RUN, "steps": 24, "save_freq": 8}
CASES = {
    "VAE": FLAGS,
    "without VAE": {**FLAGS, "policy.use_vae": "false"},
    "scheduled": {
        **FLAGS,
        "policy.use_vae": "false",
        "use_policy_training_preset": "false",
        "optimizer.type": "adamw",
        "optimizer.lr": 1e-3,
        "scheduler.type": "cosine_decay_with_warmup",
        "scheduler.peak_lr": 1e-3,
        "scheduler.decay_lr": 1e-4,
        # Shorter than any run here: LeRobot stretches a longer schedule to the run's length, also on a resume with another one.
        "scheduler.num_warmup_steps": 3,
        "scheduler.num_decay_steps": 10,
    },
    "cameras": {**dataset("toy_h264"), **TINY_ACT, **RUN, "steps": 8, "save_freq": 4, "policy.use_vae": "false"},
}


def resume(checkpoint, steps) -> dict:
    return {"resume": "true", "config_path": checkpoint / "pretrained_model" / "train_config.json", "steps": steps}


def assert_continues(resumed, whole, step):
    assert resumed.steps[0]["step"] == step + 1
    assert resumed.indices == whole.indices[step:]
    assert resumed.losses == pytest.approx(whole.losses[step:], rel=1e-4)
    assert resumed.grad_norms == pytest.approx(whole.grad_norms[step:], rel=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_ours_continues_lerobots_run_as_if_it_had_not_stopped(runs, case):
    flags = CASES[case]
    theirs = runs.theirs(**flags)
    step = flags["save_freq"]
    resumed = runs.ours(**resume(theirs.checkpoint(step), flags["steps"]))
    assert_continues(resumed, theirs, step)


@pytest.mark.parametrize("case", CASES)
def test_ours_continues_its_own_run_as_if_it_had_not_stopped(runs, case):
    flags = CASES[case]
    ours = runs.ours(**flags)
    step = flags["save_freq"]
    resumed = runs.ours(**resume(ours.checkpoint(step), flags["steps"]))
    assert_continues(resumed, ours, step)


def test_ours_continues_lerobots_run_in_a_later_epoch(runs):
    """Sixteen steps are an epoch. LeRobot itself would take the first epoch's order again."""
    flags = {**FLAGS, "steps": 36, "save_freq": 20}
    theirs = runs.theirs(**flags)
    resumed = runs.ours(**resume(theirs.checkpoint(20), 36))
    assert_continues(resumed, theirs, 20)


@pytest.mark.parametrize("case", [case for case in CASES if case != "VAE"])
def test_lerobot_continues_our_run(runs, case):
    """Within the first epoch, where LeRobot resumes exactly."""
    flags = CASES[case]
    ours = runs.ours(**flags)
    step = flags["save_freq"]
    resumed = runs.theirs(**resume(ours.checkpoint(step), step + 4))
    assert resumed.steps[0]["step"] == step + 1
    assert resumed.indices == ours.indices[step : step + 4]
    assert resumed.losses == pytest.approx(ours.losses[step : step + 4], rel=1e-4)


def test_lerobot_continues_our_run_as_it_continues_its_own(runs):
    """With a VAE: LeRobot's noise is shifted by one draw after any resume, from either side's checkpoint alike."""
    ours = runs.theirs(**resume(runs.ours(**FLAGS).checkpoint(8), 12))
    theirs = runs.theirs(**resume(runs.theirs(**FLAGS).checkpoint(8), 12))
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)


def test_a_checkpoint_travels_back_and_forth(runs, tmp_path):
    """Ours to LeRobot to ours, in another place than where it was written."""
    flags = CASES["without VAE"]
    whole = runs.theirs(**flags)
    moved = shutil.copytree(runs.ours(**flags).checkpoint(8), tmp_path / "moved")
    middle = runs.theirs(**resume(moved, 12))
    last = runs.ours(**resume(middle.checkpoint(12), 16))
    assert last.indices == whole.indices[12:16]
    assert last.losses == pytest.approx(whole.losses[12:16], rel=1e-4)
