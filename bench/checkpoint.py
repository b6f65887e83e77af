"""checkpoint: saves of the default ACT (51.6 M parameters, 620 MB with optimizer state) while it trains on the CPU.

LeRobot stands still until its save is complete; ours copies what training will change and writes it in the background.
"""

import json
import os
import pathlib
import shutil
import statistics
import threading
import time

from measure import SCRATCH, Row, Verdict, watch
from trainers import alternate, default_act

STEPS = 9
SAVE_EVERY = 3
FLAGS = [*default_act(batch_size=4, steps=STEPS), f"--save_freq={SAVE_EVERY}", "--log_freq=0"]


class CompletionWatch:
    """Notes when checkpoints/last begins to name a checkpoint: then it is complete, on either side."""

    def __init__(self, output: pathlib.Path):
        self.seen: dict[str, float] = {}
        self._link = output / "checkpoints" / "last"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began = time.monotonic()

    def _run(self):
        while not self._over.wait(0.005):
            try:
                self.seen.setdefault(os.readlink(self._link), time.monotonic() - self._began)
            except OSError:
                continue

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.wait(0.02)
        self._over.set()
        self._thread.join()


def measure(program: list, name: str) -> dict[str, float]:
    output = SCRATCH / f"checkpoint-{name}"
    shutil.rmtree(output, ignore_errors=True)
    with CompletionWatch(output) as completed:
        run = watch([*program, *FLAGS, f"--output_dir={output}"])
    began = run.times("Checkpoint policy after step")
    if len(began) != STEPS // SAVE_EVERY or len(completed.seen) != len(began):
        raise RuntimeError(f"{name}: expected {STEPS // SAVE_EVERY} checkpoints, saw {len(began)} begun and {len(completed.seen)} completed")
    complete = [end - start for start, end in zip(began, sorted(completed.seen.values()))]
    stalls = complete
    metrics = output / "metrics.jsonl"
    if metrics.exists():
        lines = map(json.loads, metrics.read_text().splitlines())
        stalls = [line["checkpoint_stall_s"] for line in lines if "checkpoint_stall_s" in line]
    shutil.rmtree(output)
    return {
        "stall_s": statistics.median(stalls),
        "first_stall_s": stalls[0],
        "complete_s": statistics.median(complete),
        "peak_pss_mib": run.peak_pss_mib,
    }


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    ours, theirs = alternate(measure, rounds)
    return [ours, theirs], [
        Verdict("stall", "s", ours.median("stall_s"), theirs.median("stall_s"), "LeRobot", "<= 0.1"),
        Verdict("complete", "s", ours.median("complete_s"), theirs.median("complete_s"), "LeRobot", ""),
    ]
