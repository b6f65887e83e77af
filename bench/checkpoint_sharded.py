"""checkpoint-sharded: an ACT of about 500 M parameters (2 GB, 4 GB of Adam state) divided over two processes by FSDP: shards and
gathered weights, beside torch.distributed.checkpoint on fully_shard's state.

stall_s     seconds that training stands still for a save (torch: all of it)
complete_s  seconds until the checkpoint is complete
load_s      seconds to read weights (of shards) and optimizer state on the same two processes
"""

import json
import re
import shutil
import statistics
import sys

from checkpoint import CompletionWatch
from measure import PROJECT, SCRATCH, Row, Verdict, watch
from trainers import LAUNCH, OURS, default_act

WIDTH = 2048
STEPS, SAVE_EVERY = 4, 2
PEER = PROJECT / "bench" / "peers" / "checkpoint_sharded.py"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
LAUNCH_TWO = [LAUNCH, "--standalone", "--nproc-per-node=2", "--local-ranks-filter=0"]
FORMS = {"dcp": "shards", "safetensors": "gathered"}


def ours(form: str) -> dict[str, float]:
    output = SCRATCH / "checkpoint-sharded"
    shutil.rmtree(output, ignore_errors=True)
    flags = [
        *default_act(batch_size=1, steps=STEPS),
        f"--policy.dim_model={WIDTH}",
        f"--policy.dim_feedforward={4 * WIDTH}",
        "--parallelism.dp_shard=2",
        f"--checkpoint_format={form}",
        f"--save_freq={SAVE_EVERY}",
        "--log_freq=0",
        f"--output_dir={output}",
    ]
    with CompletionWatch(output) as completed:
        run = watch([*LAUNCH_TWO, *OURS, *flags], environment=ONE_THREAD)
    began = run.times("Checkpoint policy after step")
    if len(began) != 2 or len(completed.seen) != 2:
        raise RuntimeError(f"{form}: expected 2 checkpoints, saw {len(began)} begun and {len(completed.seen)} completed")
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    stalls = [line["checkpoint_stall_s"] for line in lines if "checkpoint_stall_s" in line]
    resumed = watch([*LAUNCH_TWO, *OURS, "--resume=true", f"--config_path={output}", f"--steps={STEPS}"], environment=ONE_THREAD)
    read = [found[1] for _, line in resumed.lines if (found := re.search(r"\(read in ([\d.]+) s\)", line))]
    shutil.rmtree(output)
    return {
        "stall_s": statistics.median(stalls),
        "complete_s": statistics.median(end - start for start, end in zip(began, sorted(completed.seen.values()))),
        "load_s": float(read[0]),
        "rank_pss_mib": run.peak_process_pss_mib,
    }


def torchs(form: str) -> dict[str, float]:
    folder = SCRATCH / "checkpoint-sharded-torch"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", PEER, form, str(WIDTH), folder]
    run = watch(command, environment=ONE_THREAD)
    shutil.rmtree(folder)
    seconds = json.loads(next(line for _, line in run.lines if line.startswith("{")))
    return {"stall_s": seconds["save_s"], "complete_s": seconds["save_s"], "load_s": seconds["load_s"], "rank_pss_mib": run.peak_process_pss_mib}


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    rows, verdicts = [], []
    for form, name in FORMS.items():
        mine, peer = Row(f"{name}, ours"), Row(f"{name}, torch")
        for _ in range(rounds):
            mine.add(**ours(form))
            peer.add(**torchs(form))
        rows += [mine, peer]
        for quantity, unit in (("stall_s", "s"), ("complete_s", "s"), ("load_s", "s"), ("rank_pss_mib", "MiB")):
            verdicts.append(Verdict(f"{name}.{quantity}", unit, mine.median(quantity), peer.median(quantity), "torch", ""))
    return rows, verdicts
