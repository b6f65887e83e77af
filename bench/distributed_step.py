"""distributed-step: the default ACT (51.6 M parameters) in two processes of one thread each, batch 4 a process, on the CPU; DDP and
FSDP over Gloo, beside torch's own DistributedDataParallel and fully_shard on LeRobot's policy of the same shapes."""

import shutil
import statistics
import sys

from measure import PROJECT, SCRATCH, Row, Verdict, watch
from trainers import LAUNCH, OURS, default_act

STEPS = 10
WARM_UP = 2
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
PEER = PROJECT / "bench" / "peers" / "distributed_step.py"
LAYOUTS = {"DDP": [], "FSDP": ["--parallelism.dp_shard=2"]}


def step_times(run, pattern: str) -> dict[str, float]:
    times = run.times(pattern)
    if len(times) != STEPS:
        raise RuntimeError(f"expected {STEPS} steps, saw {len(times)}")
    steps = [after - before for before, after in zip(times, times[1:])]
    return {"step_s": statistics.median(steps[WARM_UP:]), "rank_pss_mib": run.peak_process_pss_mib}


def ours(layout: str) -> dict[str, float]:
    output = SCRATCH / f"distributed-step-{layout}"
    shutil.rmtree(output, ignore_errors=True)
    flags = [*default_act(batch_size=4, steps=STEPS), "--log_freq=1", "--save_checkpoint=false", f"--output_dir={output}"]
    launch = [LAUNCH, "--standalone", "--nproc-per-node=2", "--local-ranks-filter=0"]
    return step_times(watch([*launch, *OURS, *flags, *LAYOUTS[layout]], environment=ONE_THREAD, memory_every_s=0.1), r"\bstep:\d+ ")


def torchs(layout: str) -> dict[str, float]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", PEER, layout, str(STEPS)]
    return step_times(watch(command, environment=ONE_THREAD, memory_every_s=0.1), r"^step \d+ ")


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    rows, verdicts = [], []
    for layout, step_goal in (("DDP", "<= 0.95"), ("FSDP", "<= 0.75")):
        mine, peer = Row(f"{layout}, ours"), Row(f"{layout}, torch")
        for _ in range(rounds):
            mine.add(**ours(layout))
            peer.add(**torchs(layout))
        rows += [mine, peer]
        name = layout.lower()
        verdicts += [
            Verdict(f"{name}.step", "s", mine.median("step_s"), peer.median("step_s"), "torch", step_goal),
            Verdict(f"{name}.memory", "MiB", mine.median("rank_pss_mib"), peer.median("rank_pss_mib"), "torch", "<= 0.6"),
        ]
    return rows, verdicts
