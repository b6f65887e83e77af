"""train-act: the default ACT (chunk 100, 51.6 M parameters) on one 96x96 camera, batch 8, on the CPU, with equal flags."""

import shutil
import statistics

from measure import SCRATCH, Row, Verdict, watch
from trainers import alternate, default_act

STEPS = 10
# Steps before the clock: memory is touched for the first time, kernels choose their blocking.
WARM_UP = 2
FLAGS = [*default_act(batch_size=8, steps=STEPS), "--log_freq=1", "--save_checkpoint=false"]


def measure(program: list, name: str) -> dict[str, float]:
    output = SCRATCH / f"train-act-{name}"
    shutil.rmtree(output, ignore_errors=True)
    run = watch([*program, *FLAGS, f"--output_dir={output}"])
    times = run.times(r"\bstep:\d+ ")
    if len(times) != STEPS:
        raise RuntimeError(f"{name}: expected {STEPS} steps, saw {len(times)}")
    steps = [after - before for before, after in zip(times, times[1:])]
    return {
        "step_s": statistics.median(steps[WARM_UP:]),
        "first_step_s": times[0],
        "peak_pss_mib": run.peak_pss_mib,
    }


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    ours, theirs = alternate(measure, rounds)
    return [ours, theirs], [
        Verdict("step", "s", ours.median("step_s"), theirs.median("step_s"), "LeRobot", "<= 0.9"),
        Verdict("first_step", "s", ours.median("first_step_s"), theirs.median("first_step_s"), "LeRobot", ""),
        Verdict("memory", "MiB", ours.median("peak_pss_mib"), theirs.median("peak_pss_mib"), "LeRobot", ""),
    ]
