"""Runs a program and watches it from outside: when it says what, and how much memory its process tree holds."""

import dataclasses
import os
import pathlib
import re
import statistics
import subprocess
import threading
import time

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = pathlib.Path(os.environ.get("LEROBOT_BIN", PROJECT / "build" / "release" / "bin")).resolve()
SCRATCH = PROJECT / "build" / "bench"



@dataclasses.dataclass
class Watched:
    # Seconds from the process's start, and what it wrote, a line each; standard output and error together.
    lines: list[tuple[float, str]]
    # Greatest proportional set size of the process tree, in MiB.
    peak_pss_mib: float
    # The same of the largest single process in it.
    peak_process_pss_mib: float
    seconds: float

    def times(self, pattern: str) -> list[float]:
        return [at for at, line in self.lines if re.search(pattern, line)]


def process_tree_pss_mib(root: int) -> list[float]:
    """Of every process that descends from `root`, and of itself."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    sizes, open_ends = [], [root]
    while open_ends:
        process = open_ends.pop()
        open_ends += children.get(process, [])
        try:
            rollup = pathlib.Path("/proc", str(process), "smaps_rollup").read_text()
            sizes.append(int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1]) / 1024)
        except (OSError, TypeError):
            continue
    return sizes


def watch(
    command: list,
    *,
    stop_at: str | None = None,
    limit_s: float = 900,
    environment: dict | None = None,
    memory_every_s: float = 0.4,
) -> Watched:
    """Runs a command to its end, or until a line matches `stop_at`. Fails when the command fails."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(SCRATCH / "hf"), "CUDA_VISIBLE_DEVICES": "", **(environment or {})}
    began = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    peak, peak_process, over = 0.0, 0.0, threading.Event()

    def sample_memory():
        nonlocal peak, peak_process
        while not over.wait(memory_every_s):
            sizes = process_tree_pss_mib(process.pid)
            peak = max(peak, sum(sizes))
            peak_process = max(peak_process, *sizes, 0.0)

    sampler = threading.Thread(target=sample_memory, daemon=True)
    sampler.start()
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    lines, stopped = [], False
    try:
        # Progress bars end their lines with a carriage return.
        pending = b""
        while chunk := process.stdout.read1(1 << 16):
            at = time.monotonic() - began
            *whole, pending = re.split(rb"[\r\n]", pending + chunk)
            lines += [(at, line.decode(errors="replace")) for line in whole if line]
            if stop_at and any(re.search(stop_at, line) for _, line in lines[-len(whole) :]):
                stopped = True
                break
    finally:
        over.set()
        timer.cancel()
        if stopped or process.poll() is None:
            end_process_group(process)
        process.stdout.close()
        sampler.join()
    seconds = time.monotonic() - began
    if not stopped and process.wait() != 0:
        tail = "\n".join(line for _, line in lines[-20:])
        raise RuntimeError(f"{' '.join(map(str, command))}\nexited with {process.returncode}:\n{tail}")
    return Watched(lines, peak, peak_process, seconds)


def end_process_group(process: subprocess.Popen) -> None:
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


@dataclasses.dataclass
class Row:
    """A configuration of one side and its measurements by quantity, one number a round."""

    name: str
    values: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    def add(self, **quantities: float) -> None:
        for quantity, value in quantities.items():
            self.values.setdefault(quantity, []).append(value)

    def median(self, quantity: str) -> float:
        return statistics.median(self.values[quantity])


@dataclasses.dataclass
class Verdict:
    """One compared quantity: `ours` and `peer` are medians, `ratio` is ours / peer; `goal` says what ratio to reach."""

    name: str
    unit: str
    ours: float
    peer: float
    peer_is: str
    goal: str

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("nan")
