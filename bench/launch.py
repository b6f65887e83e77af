"""launch: seconds from the launch command to the first trained step on 2 and 4 processes (tiny ACT, DDP, one thread each), beside
torchrun with LeRobot's lerobot-train."""

import shutil
import sys

from measure import SCRATCH, Row, Verdict, watch
from trainers import LAUNCH, OURS, default_act

TINY = ["--policy.dim_model=32", "--policy.dim_feedforward=64", "--policy.n_heads=2", "--policy.n_encoder_layers=1", "--policy.n_vae_encoder_layers=1"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
PEER = ["-m", "lerobot.scripts.lerobot_train"]


def first_step(launcher: list, program: list, ranks: int, name: str) -> dict[str, float]:
    output = SCRATCH / f"launch-{name}"
    shutil.rmtree(output, ignore_errors=True)
    flags = [*default_act(batch_size=2, steps=2), *TINY, "--log_freq=1", "--save_checkpoint=false", f"--output_dir={output}"]
    command = [*launcher, "--standalone", f"--nproc-per-node={ranks}", *program, *flags]
    run = watch(command, environment={"OMP_NUM_THREADS": "1"})
    return {"first_step_s": run.times(r"\bstep:1 ")[0]}


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    rows, verdicts = [], []
    for ranks in (2, 4):
        mine, peer = Row(f"{ranks} ranks, ours"), Row(f"{ranks} ranks, torchrun and LeRobot")
        for _ in range(rounds):
            mine.add(**first_step([LAUNCH], OURS, ranks, "ours"))
            peer.add(**first_step(TORCHRUN, PEER, ranks, "theirs"))
        rows += [mine, peer]
        verdicts.append(Verdict(f"{ranks}", "s", mine.median("first_step_s"), peer.median("first_step_s"), "torchrun lerobot-train", ""))
    return rows, verdicts
