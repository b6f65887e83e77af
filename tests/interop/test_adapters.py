"""--peft.*: LoRA adapters are peft's, in their first values, in training, and in their files."""

import json
import shutil

import pytest
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.factory import make_policy
from peft import PeftModel
from safetensors.torch import load_file

from trainer import RUN, TINY_ACT, TINY_DIFFUSION, TrainingFailed, dataset

BASE = {**dataset("toy_state"), **TINY_ACT, **RUN, "steps": 4, "save_freq": 4}
CAMERAS = {**dataset("toy_h264"), **TINY_ACT, **RUN, "steps": 2, "save_freq": 2, "policy.use_vae": "false"}
ADAPTER = "adapter_model.safetensors"


def adapted(base, name="toy_state", **more) -> dict:
    return {
        **dataset(name),
        **RUN,
        "policy.path": base,
        "policy.device": "cpu",
        "policy.push_to_hub": "false",
        "policy.optimizer_lr": 1e-3,
        "peft.method_type": "LORA",
        "peft.r": 4,
        "steps": 4,
        "save_freq": 4,
        **more,
    }


# What --peft.* says beside r=4.
CASES = {
    "linear layers": {"peft.target_modules": '["linear1","linear2"]', "peft.full_training_modules": '["action_head"]'},
    "attention": {"peft.target_modules": '["self_attn","multihead_attn"]', "peft.lora_alpha": 16},
    "output projection alone": {"peft.target_modules": '["out_proj","linear1"]'},
    "regular expression": {"peft.target_modules": r".*encoder\.layers\.\d\.linear[12]"},
    "all linear layers": {"peft.target_modules": "all-linear", "peft.full_training_modules": '["action_head"]'},
    "gaussian": {"peft.target_modules": '["linear1","self_attn"]', "peft.init_type": "gaussian"},
    "orthogonal": {"peft.target_modules": '["linear1"]', "peft.init_type": "orthogonal"},
    "OLoRA": {"peft.target_modules": '["linear2"]', "peft.init_type": "olora"},
    "PiSSA": {"peft.target_modules": '["linear2"]', "peft.init_type": "pissa"},
    "attention trained whole": {"peft.target_modules": '["linear1"]', "peft.full_training_modules": '["multihead_attn","norm3"]'},
}


def expect_same_adapter(ours, theirs, tolerance):
    ours, theirs = load_file(ours / ADAPTER), load_file(theirs / ADAPTER)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        if name.endswith("in_proj_bias"):
            # A bias on attention's keys changes nothing: its gradient is rounding noise, which Adam turns into steps of full size.
            keys = slice(len(tensor) // 3, 2 * len(tensor) // 3)
            ours[name][keys] = tensor[keys] = 0
        torch.testing.assert_close(ours[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("case", CASES)
def test_adapters_train_alike(runs, case):
    base = runs.theirs(**BASE).model(4)
    flags = adapted(base, **CASES[case])
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
    assert ours.grad_norms == pytest.approx(theirs.grad_norms, rel=2e-4)
    expect_same_adapter(ours.model(4), theirs.model(4), 2e-5 if "SSA" not in case else 1e-4)


def test_convolutions_of_the_backbone_take_adapters(runs):
    base = runs.theirs(**CAMERAS).model(2)
    flags = adapted(base, "toy_h264", steps=2, save_freq=2, **{"peft.target_modules": '["conv2","encoder_img_feat_input_proj"]'})
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
    expect_same_adapter(ours.model(2), theirs.model(2), 5e-5)


def test_diffusions_convolutions_take_adapters(runs):
    base = runs.theirs(**{**dataset("toy_state"), **TINY_DIFFUSION, **RUN, "steps": 2, "save_freq": 2}).model(2)
    # A rate in the first update, too.
    flags = adapted(
        base,
        **{"peft.target_modules": '["conv1.block.0","cond_encoder.1"]', "policy.scheduler_warmup_steps": 0},
        **{"peft.full_training_modules": '["final_conv.1"]'},
    )
    ours, theirs = runs.ours(**flags), runs.theirs(**flags)
    assert ours.indices == theirs.indices
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-5)
    expect_same_adapter(ours.model(4), theirs.model(4), 2e-5)


def test_first_values_are_pefts(runs):
    """Without a learning rate the first checkpoint holds what was drawn."""
    base = runs.theirs(**BASE).model(4)
    for targets in ('["linear1","self_attn"]', '["linear2","out_proj"]'):
        flags = adapted(base, steps=1, save_freq=1, **{"peft.target_modules": targets, "policy.optimizer_lr": 0.0})
        ours, theirs = load_file(runs.ours(**flags).model(1) / ADAPTER), load_file(runs.theirs(**flags).model(1) / ADAPTER)
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("case", ["linear layers", "attention", "all linear layers", "PiSSA"])
def test_peft_and_lerobot_load_ours(runs, case):
    base = runs.theirs(**BASE).model(4)
    run = runs.ours(**adapted(base, **CASES[case]))
    folder = run.model(4)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    model = PeftModel.from_pretrained(ACTPolicy.from_pretrained(base), folder)
    saved = load_file(folder / ADAPTER)
    live = dict(model.named_parameters())
    for name, tensor in saved.items():
        found = [parameter for key, parameter in live.items() if key.replace("modules_to_save.default.", "").replace(".default", "") == name]
        assert len(found) == 1, name
        assert torch.equal(found[0], tensor), name

    policy_config = PreTrainedConfig.from_pretrained(folder)
    assert policy_config.use_peft
    policy_config.pretrained_path = folder
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

    meta = LeRobotDatasetMetadata("facts/toy_state", root=dataset("toy_state")["dataset.root"])
    policy = make_policy(policy_config, ds_meta=meta)
    assert isinstance(policy, PeftModel)


@pytest.mark.parametrize("written_by", ["ours", "theirs"])
def test_both_sides_resume_either_sides_adapter(runs, written_by, tmp_path):
    # Without a VAE: LeRobot draws other noise after a resume within an epoch.
    base = runs.theirs(**{**BASE, "policy.use_vae": "false"}).model(4)
    flags = adapted(base, steps=8, save_freq=4, **CASES["linear layers"])
    whole = getattr(runs, written_by)(**flags)
    for side in ("ours", "theirs"):
        copy = tmp_path / side
        shutil.copytree(whole.checkpoint(4), copy / "checkpoints" / "000004")
        again = getattr(runs, side)(
            **{
                "resume": "true",
                "config_path": copy / "checkpoints" / "000004" / "pretrained_model" / "train_config.json",
                "num_workers": 0,
            }
        )
        tail = whole.steps[4:]
        assert [step["index"] for step in again.steps[-4:]] == [step["index"] for step in tail]
        assert [step["loss"] for step in again.steps[-4:]] == pytest.approx([step["loss"] for step in tail], rel=1e-4)


def test_messages_are_lerobots(runs):
    base = runs.theirs(**BASE).model(4)
    with pytest.raises(TrainingFailed, match="Policy 'act' does not define default target_modules. Please pass --peft.target_modules explicitly"):
        runs.ours(**adapted(base))
    with pytest.raises(ValueError, match="Policy 'act' does not define default target_modules. Please pass --peft.target_modules explicitly"):
        runs.theirs(**adapted(base))
