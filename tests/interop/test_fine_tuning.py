"""--policy.path: both sides start from either side's checkpoint and train the same."""

import json

import pytest

from trainer import RUN, TINY_ACT, dataset

FIRST = {**dataset("toy_state"), **TINY_ACT, **RUN, "steps": 12, "save_freq": 8}
CAMERAS = {**dataset("toy_h264"), **TINY_ACT, **RUN, "steps": 4, "save_freq": 2, "policy.use_vae": "false"}


def fine_tune(folder, name, **more) -> dict:
    return {
        **dataset(name),
        **RUN,
        "policy.path": folder,
        "policy.device": "cpu",
        "policy.push_to_hub": "false",
        "seed": 42,
        "steps": 5,
        "save_freq": 5,
        **more,
    }


@pytest.mark.parametrize("written_by", ["ours", "theirs"])
@pytest.mark.parametrize("flags", [FIRST, CAMERAS], ids=["state", "cameras"])
def test_both_sides_fine_tune_alike(runs, written_by, flags):
    name = flags["dataset.repo_id"].removeprefix("facts/")
    start = getattr(runs, written_by)(**flags).model(flags["steps"])
    ours, theirs = runs.ours(**fine_tune(start, name)), runs.theirs(**fine_tune(start, name))
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
    assert ours.grad_norms == pytest.approx(theirs.grad_norms, rel=1e-4)
    for file in ("config.json", "policy_preprocessor.json", "policy_postprocessor.json"):
        # Parsed, because LeRobot turns replace_final_stride_with_dilation from false into 0 when it loads a policy.
        assert json.loads((ours.model(5) / file).read_text()) == json.loads((theirs.model(5) / file).read_text())


def test_overrides_apply_to_the_loaded_policy(runs):
    start = runs.theirs(**FIRST).model(12)
    flags = fine_tune(start, "toy_state", **{"policy.optimizer_lr": 1e-3, "policy.kl_weight": 1.0, "dataset.episodes": "[1,3]"})
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)


def test_the_new_datasets_statistics_replace_the_saved_ones(runs):
    """toy_split has toy_h264's features, other numbers, and one camera of the two."""
    start = runs.theirs(**{**dataset("toy_split"), **TINY_ACT, **RUN, "steps": 2, "save_freq": 2, "policy.use_vae": "false"}).model(2)
    flags = fine_tune(start, "toy_av1")
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
