"""hub-download: 2,000 files and 4 GB from the test Hub (tests/support) into an empty cache.

Ours (hub::download_snapshot, by the program of tests/interop) against huggingface_hub.snapshot_download, once over plain HTTP and once
with hf_xet. Seconds are the whole process's, as a user waits for them; the time without what the interpreter and its imports take is a
quantity of its own. The server and its files are the same for all; it answers from the page cache on the same machine, and takes its part
of the CPU in proportion to the requests that it gets.
"""

import contextlib
import os
import pathlib
import random
import resource
import shutil
import sys
from collections.abc import Iterator

from measure import PROGRAMS, PROJECT, SCRATCH, Row, Verdict, Watched, watch

sys.path.insert(0, str(PROJECT / "tests" / "interop"))

from hub_server import HubServer

REPO = "bench/files"
SMALL_FILES = 1990
SMALL_BYTES = (2_000, 40_000)
LARGE_FILES = 10
LARGE_BYTES = 396_000_000
BLOCK = 1 << 20
HOME = SCRATCH / "hub-home"
CACHE = HOME / "hub"


def make_files() -> pathlib.Path:
    """The folder that is served; made when it is not there."""
    folder = SCRATCH / f"hub-{SMALL_FILES}-{LARGE_FILES}x{LARGE_BYTES}"
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    numbers = random.Random(1000)
    for number in range(SMALL_FILES):
        ending = "parquet" if number % 2 else "json"
        path = unfinished / f"small/{number % 20:02d}/file-{number:04d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbers.randbytes(numbers.randint(*SMALL_BYTES)))
    for number in range(LARGE_FILES):
        with (unfinished / f"large-{number}.mp4").open("wb") as file:
            for at in range(0, LARGE_BYTES, BLOCK):
                file.write(os.urandom(min(BLOCK, LARGE_BYTES - at)))
    unfinished.rename(folder)
    return folder


@contextlib.contextmanager
def hub(folder: pathlib.Path) -> Iterator[HubServer]:
    """Half of the small files are regular ones; the others and the large ones are in Xet storage, which serves them over plain HTTP, too."""
    server = HubServer(PROGRAMS, f"--large_from={10_000_000}", "--xet=true", f"--dataset={REPO}={folder}")
    try:
        yield server
    finally:
        server.close()


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def download(command: list, server: HubServer, **environment: str) -> tuple[dict[str, float], Watched, pathlib.Path]:
    """Runs a command that downloads into CACHE, empty before, and prints the folder as its last line."""
    shutil.rmtree(HOME, ignore_errors=True)
    server.forget_requests()
    before = children_cpu_s()
    run = watch(
        command,
        environment={
            "HF_ENDPOINT": server.endpoint,
            "HF_HOME": str(HOME),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **environment,
        },
        memory_every_s=0.2,
    )
    quantities = {
        "seconds": run.seconds,
        "cpu_s": children_cpu_s() - before,
        "pss_mib": run.peak_pss_mib,
        "requests": float(len(server.requests())),
    }
    return quantities, run, pathlib.Path(run.lines[-1][1])


def check(source: pathlib.Path, snapshot: pathlib.Path) -> None:
    def sizes(folder: pathlib.Path) -> dict[str, int]:
        return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}

    if sizes(source) != sizes(snapshot):
        raise RuntimeError(f"{snapshot} does not hold the files of {source}")


def ours(source: pathlib.Path, server: HubServer) -> dict[str, float]:
    quantities, _, snapshot = download([PROGRAMS / "hub_get", "dataset", REPO, "main", CACHE], server)
    check(source, snapshot)
    return {**quantities, "download_s": quantities["seconds"]}


def theirs(source: pathlib.Path, server: HubServer, *, xet: bool) -> dict[str, float]:
    script = pathlib.Path(__file__).parent / "peers" / "hub_download.py"
    quantities, run, snapshot = download([sys.executable, script, REPO, CACHE], server, HF_HUB_DISABLE_XET="0" if xet else "1")
    check(source, snapshot)
    return {**quantities, "download_s": quantities["seconds"] - run.times("^imported$")[0]}


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    source = make_files()
    our_row, plain_row, xet_row = Row("ours"), Row("huggingface_hub"), Row("huggingface_hub with hf_xet")
    with hub(source) as server:
        for _ in range(rounds):
            our_row.add(**ours(source, server))
            plain_row.add(**theirs(source, server, xet=False))
            xet_row.add(**theirs(source, server, xet=True))
    shutil.rmtree(HOME, ignore_errors=True)
    verdicts = []
    for label, peer in (("plain", plain_row), ("xet", xet_row)):
        for name, unit, quantity in (
            ("time", "s", "seconds"),
            ("time_without_start", "s", "download_s"),
            ("cpu", "s", "cpu_s"),
            ("memory", "MiB", "pss_mib"),
        ):
            verdicts.append(Verdict(f"{name}.{label}", unit, our_row.median(quantity), peer.median(quantity), peer.name, ""))
    return [our_row, plain_row, xet_row], verdicts
