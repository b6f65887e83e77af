"""peft: the default ACT (51.6 M parameters) fine-tuned whole and through LoRA (r=16 on all feed-forward layers and attention), on the CPU:
one process beside LeRobot with peft, and two processes whose model is sharded.

step_s          seconds of a step
state_mib       what AdamW and the gradients hold: 12 bytes a trainable parameter (of one process's share)
peak_pss_mib    the process at its greatest
checkpoint_mib  weights and optimizer state on the disk
complete_s      seconds from the beginning of a save until the checkpoint is complete
"""

import pathlib
import re
import shutil
import statistics

from checkpoint import CompletionWatch
from measure import SCRATCH, Row, Verdict, watch
from trainers import LAUNCH, OURS, PEER, PUSHT, default_act

STEPS, SAVE_EVERY, WARM_UP = 8, 4, 2
BASE = SCRATCH / "peft-base"
LORA = ["--peft.method_type=LORA", "--peft.r=16", '--peft.target_modules=["linear1","linear2","self_attn","multihead_attn"]']
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
BYTES_A_PARAMETER = 12  # a gradient and two moments, float32


def make_base() -> pathlib.Path:
    """A policy to start from; the same one for all."""
    folder = BASE / "checkpoints" / "000001" / "pretrained_model"
    if not folder.exists():
        shutil.rmtree(BASE, ignore_errors=True)
        watch([*OURS, *default_act(batch_size=1, steps=1), f"--output_dir={BASE}"])
    return folder


def folder_mib(folder: pathlib.Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / (1 << 20)


def fine_tune(program: list, name: str, more: list, ranks: int = 1) -> dict[str, float]:
    output = SCRATCH / "peft-run"
    shutil.rmtree(output, ignore_errors=True)
    flags = [
        *PUSHT,
        f"--policy.path={make_base()}",
        "--policy.device=cpu",
        "--policy.push_to_hub=false",
        f"--batch_size={8 // ranks}",
        "--num_workers=0",
        f"--steps={STEPS}",
        f"--save_freq={SAVE_EVERY}",
        "--log_freq=1",
        f"--output_dir={output}",
        *more,
    ]
    with CompletionWatch(output) as completed:
        run = watch([*program, *flags], environment=ONE_THREAD if ranks > 1 else None, memory_every_s=0.1)
    times = run.times(r"\bstep:\d+ ")
    began = run.times("Checkpoint policy after step")
    if len(times) != STEPS or len(completed.seen) != len(began):
        raise RuntimeError(f"{name}: saw {len(times)} steps, {len(began)} saves and {len(completed.seen)} checkpoints")
    steps = [after - before for i, (before, after) in enumerate(zip(times, times[1:]), 1) if i >= WARM_UP and i % SAVE_EVERY != 0]
    trainable = next(int(found[1]) for _, line in run.lines if (found := re.search(r"num_learnable_params=(\d+)", line)))
    last = output / "checkpoints" / f"{STEPS:06d}"
    result = {
        "step_s": statistics.median(steps),
        "state_mib": trainable * BYTES_A_PARAMETER / ranks / (1 << 20),
        "peak_pss_mib": run.peak_process_pss_mib,
        "checkpoint_mib": folder_mib(last),
        "complete_s": statistics.median(end - start for start, end in zip(began, sorted(completed.seen.values()))),
    }
    shutil.rmtree(output)
    return result


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    two = [LAUNCH, "--standalone", "--nproc-per-node=2", "--local-ranks-filter=0", *OURS]
    sharded = ["--parallelism.dp_shard=2"]
    sides = {
        "LoRA, ours": (OURS, LORA, 1),
        "LoRA, LeRobot": (PEER, LORA, 1),
        "whole, ours": (OURS, [], 1),
        "LoRA, 2 shards": (two, [*LORA, *sharded], 2),
        "whole, 2 shards": (two, sharded, 2),
    }
    rows = {name: Row(name) for name in sides}
    for _ in range(rounds):
        for name, (program, more, ranks) in sides.items():
            rows[name].add(**fine_tune(program, name, more, ranks))

    def verdict(quantity: str, name: str, unit: str, ours: str, peer: str, peer_is: str) -> Verdict:
        return Verdict(name, unit, rows[ours].median(quantity), rows[peer].median(quantity), peer_is, "")

    return list(rows.values()), [
        verdict("step_s", "step", "s", "LoRA, ours", "LoRA, LeRobot", "LeRobot"),
        verdict("peak_pss_mib", "memory", "MiB", "LoRA, ours", "LoRA, LeRobot", "LeRobot"),
        verdict("complete_s", "complete", "s", "LoRA, ours", "LoRA, LeRobot", "LeRobot"),
        verdict("checkpoint_mib", "checkpoint", "MiB", "LoRA, ours", "whole, ours", "whole policy"),
        verdict("state_mib", "rank_state", "MiB", "LoRA, 2 shards", "whole, 2 shards", "whole policy"),
        verdict("peak_pss_mib", "rank_memory", "MiB", "LoRA, 2 shards", "whole, 2 shards", "whole policy"),
    ]
