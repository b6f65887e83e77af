"""The real LeRobot: its trainer with a record of every step, and its pieces for looking at what we wrote."""

import contextlib
import io
import logging
import pathlib
import sys
from unittest import mock

import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.train import TrainPipelineConfig
from lerobot.datasets.factory import make_train_eval_datasets
from lerobot.policies import make_pre_post_processors
from lerobot.policies.factory import get_policy_class
from lerobot.scripts import lerobot_train

import trainer


def train(output: pathlib.Path, flags: dict) -> trainer.Run:
    """Runs LeRobot's lerobot-train in this process and records index, loss and gradient norm of every step in full precision."""
    steps = []
    update_policy = lerobot_train.update_policy

    def recording_update(metrics, policy, batch, *args, **kwargs):
        result = update_policy(metrics, policy, batch, *args, **kwargs)
        steps.append(
            {
                "step": metrics.steps + 1,
                "index": batch["index"].flatten().tolist(),
                "loss": metrics.loss.val,
                "grad_norm": metrics.grad_norm.val,
            }
        )
        return result

    log = io.StringIO()
    init_logging = lerobot_train.init_logging

    def recording_init_logging(*args, **kwargs):
        init_logging(*args, **kwargs)
        logging.getLogger().addHandler(logging.StreamHandler(log))

    # accelerate keeps its settings for the life of a process.
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    arguments = trainer.as_arguments({**flags, "output_dir": output})
    with (
        mock.patch.object(sys, "argv", ["lerobot-train", *arguments]),
        mock.patch.object(lerobot_train, "update_policy", recording_update),
        mock.patch.object(lerobot_train, "init_logging", recording_init_logging),
        contextlib.chdir(trainer.PROJECT),
    ):
        lerobot_train.train()
    return trainer.Run(output, steps, log.getvalue())


class LoadedPolicy:
    """What LeRobot makes of a pretrained_model folder: policy, processors, and the dataset that its train_config.json names."""

    def __init__(self, folder: pathlib.Path):
        self.config = TrainPipelineConfig.from_pretrained(folder)
        config = PreTrainedConfig.from_pretrained(folder)
        self.policy = get_policy_class(config.type).from_pretrained(folder)
        self.preprocessor, self.postprocessor = make_pre_post_processors(config, pretrained_path=folder)
        self.dataset, self.eval_dataset = make_train_eval_datasets(self.config)

    def batch(self, rows, dataset=None) -> dict:
        """A preprocessed batch of the dataset's rows, as the training loop makes it."""
        dataset = dataset or self.dataset
        batch = torch.utils.data.default_collate([dataset[row] for row in rows])
        for camera in dataset.meta.camera_keys:
            if batch[camera].dtype == torch.uint8:
                batch[camera] = batch[camera].to(torch.float32) / 255.0
        return self.preprocessor(batch)

    def loss(self, rows, *, training: bool, dataset=None) -> float:
        self.policy.train(training)
        with torch.no_grad():
            loss, _ = self.policy.forward(self.batch(rows, dataset))
        return loss.item()

    def actions(self, rows) -> torch.Tensor:
        """The unnormalised action chunks for the observations of the rows."""
        self.policy.eval()
        with torch.no_grad():
            return self.postprocessor(self.policy.predict_action_chunk(self.batch(rows)))
