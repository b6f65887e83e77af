"""Our trainer, and what a training run of either side leaves behind."""

import dataclasses
import json
import pathlib
import subprocess

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DATASETS = PROJECT / "tests" / "data" / "datasets"

# The small ACT of tests/data: every part is there, a step takes milliseconds, nothing is random but initial weights and VAE noise.
TINY_ACT = {
    "policy.type": "act",
    "policy.device": "cpu",
    "policy.push_to_hub": "false",
    "policy.pretrained_backbone_weights": "null",
    "policy.dim_model": 32,
    "policy.n_heads": 4,
    "policy.dim_feedforward": 48,
    "policy.n_encoder_layers": 2,
    "policy.n_decoder_layers": 1,
    "policy.n_vae_encoder_layers": 2,
    "policy.latent_dim": 8,
    "policy.chunk_size": 5,
    "policy.n_action_steps": 5,
    "policy.dropout": 0.0,
}
# The small diffusion policy of tests/data. Noise and its steps are random, and crops in training.
TINY_DIFFUSION = {
    "policy.type": "diffusion",
    "policy.device": "cpu",
    "policy.push_to_hub": "false",
    "policy.pretrained_backbone_weights": "null",
    "policy.horizon": 8,
    "policy.n_action_steps": 4,
    "policy.down_dims": "[16,32]",
    "policy.diffusion_step_embed_dim": 16,
    "policy.num_train_timesteps": 20,
    "policy.spatial_softmax_num_keypoints": 8,
    "policy.optimizer_lr": 1e-3,
    "policy.scheduler_warmup_steps": 5,
}
RUN = {"seed": 1000, "batch_size": 4, "num_workers": 0, "log_freq": 1, "env_eval_freq": 0}


def dataset(name: str) -> dict:
    return {"dataset.repo_id": f"facts/{name}", "dataset.root": DATASETS / name}


def as_arguments(flags: dict) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


@dataclasses.dataclass
class Run:
    output: pathlib.Path
    # One entry a step: step, index (global frame numbers of the batch), loss, grad_norm.
    steps: list[dict]
    log: str

    @property
    def indices(self) -> list[list[int]]:
        return [step["index"] for step in self.steps]

    @property
    def losses(self) -> list[float]:
        return [step["loss"] for step in self.steps]

    @property
    def grad_norms(self) -> list[float]:
        return [step["grad_norm"] for step in self.steps]

    def checkpoint(self, step: int) -> pathlib.Path:
        return self.output / "checkpoints" / f"{step:06d}"

    def model(self, step: int) -> pathlib.Path:
        return self.checkpoint(step) / "pretrained_model"


class TrainingFailed(AssertionError):
    pass


def train(programs: pathlib.Path, output: pathlib.Path, flags: dict) -> Run:
    """Runs lerobot-train with the flags. A resumed run writes to the folder that its configuration names, unless a flag
    says otherwise: here every run has an output folder of its own."""
    arguments = as_arguments({**flags, "output_dir": output, "log_samples": "true"})
    done = subprocess.run(
        [programs / "lerobot-train", *arguments], cwd=PROJECT, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=300
    )
    if done.returncode != 0:
        raise TrainingFailed(f"lerobot-train {' '.join(arguments)}\nexited with {done.returncode}:\n{done.stdout}{done.stderr}")
    lines = (output / "samples.rank0.jsonl").read_text().splitlines()
    return Run(output, [json.loads(line) for line in lines], done.stderr)
