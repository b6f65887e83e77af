"""The two trainers, and the flags of the default ACT that both take."""

import sys
from collections.abc import Callable

from measure import PROGRAMS, PROJECT, Row

OURS = [PROGRAMS / "lerobot-train"]
LAUNCH = PROGRAMS / "lerobot-launch"
PEER = [sys.executable, "-m", "lerobot.scripts.lerobot_train"]
ACT_ON_CPU = ["--policy.type=act", "--policy.device=cpu", "--policy.push_to_hub=false", "--policy.pretrained_backbone_weights=null"]
PUSHT = ["--dataset.repo_id=lerobot/pusht_sim", f"--dataset.root={PROJECT / 'data' / 'pusht_sim'}"]


def default_act(*, batch_size: int, steps: int) -> list[str]:
    """The default ACT (chunk 100, 51.6 M parameters) on one 96x96 camera, frames decoded in the training thread."""
    return [*PUSHT, *ACT_ON_CPU, f"--batch_size={batch_size}", "--num_workers=0", f"--steps={steps}"]


def alternate(measure: Callable[[list, str], dict[str, float]], rounds: int) -> tuple[Row, Row]:
    """measure(program, name of the side) of either trainer in turn."""
    ours, theirs = Row("ours"), Row("LeRobot")
    for _ in range(rounds):
        ours.add(**measure(OURS, "ours"))
        theirs.add(**measure(PEER, "theirs"))
    return ours, theirs
