"""loader-hub: the camera dataset streamed from the test Hub (tests/support), every answer of which takes 30 ms, against the same stream
from the local folder, which cannot wait for a network.

On the Hub a video is a redirect to a second host whose addresses are signed. The cases are those of loader-remote.
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator

import loaders
from loader_remote import CASES, LATENCY_MS, MIB, Case, epoch_bytes, own_bytes, run
from loader_streaming import fresh_home
from measure import PROGRAMS, PROJECT, Row, Verdict

sys.path.insert(0, str(PROJECT / "tests" / "interop"))

from hub_server import HubServer

REPO = "bench/cameras"
ROOT = f"hf://datasets/{REPO}@v3.0"


@contextlib.contextmanager
def hub(folder: pathlib.Path) -> Iterator[HubServer]:
    server = HubServer(PROGRAMS, f"--dataset={REPO}={folder}", f"--tag={REPO}=v3.0", f"--latency_ms={LATENCY_MS}")
    try:
        yield server
    finally:
        server.close()


def online(server: HubServer) -> dict[str, str]:
    """An environment with an empty cache that asks this Hub."""
    return {**fresh_home(), "HF_ENDPOINT": server.endpoint, "HF_HUB_OFFLINE": "0"}


def remote(server: HubServer, case: Case, environment: dict, episodes_bytes: int) -> dict[str, float]:
    server.forget_requests()
    quantities, reports = run(ROOT, case, environment)
    return {
        **quantities,
        "hub_requests": float(len(server.requests(server="hub"))),
        "storage_requests": float(len(server.requests(server="storage"))),
        "reported_read_mib": reports[-1]["bytes_read"] / MIB,
        "fetched_of_own": epoch_bytes(case, reports) / episodes_bytes,
    }


def compare(rounds: int) -> tuple[list[Row], list[Verdict]]:
    root = loaders.cameras()
    episodes_bytes = own_bytes(root)
    local_rows = {case.name: Row(f"local, {case.name}") for case in CASES}
    remote_rows = {case.name: Row(f"Hub, {case.name}") for case in CASES}
    with hub(root) as server:
        for case in CASES:
            first = loaders.first_batch_s(ROOT, case.workers, "--dataset.streaming=true", *case.flags, environment=online(server))
            remote_rows[case.name].add(first_batch_built_s=first)
        environment = online(server)
        for _ in range(rounds):
            for case in CASES:
                local_rows[case.name].add(**run(root, case, environment)[0])
                remote_rows[case.name].add(**remote(server, case, environment, episodes_bytes))

    verdicts = []
    for case in CASES:
        local, distant = local_rows[case.name], remote_rows[case.name]
        label = case.name.replace(", ", "_").replace(" ", "_")
        for name, unit, quantity, goal in (
            ("throughput", "samples/s", "samples_per_s", ">= 0.95"),
            ("wait_p95", "s", "wait_p95_s", "<= 1.25"),
            ("wait_p99", "s", "wait_p99_s", "<= 1.25"),
            ("first_batch", "s", "first_batch_s", ""),
        ):
            verdicts.append(Verdict(f"{name}.{label}", unit, distant.median(quantity), local.median(quantity), local.name, goal))
        verdicts.append(
            Verdict(f"bytes.{label}", "own bytes", distant.median("fetched_of_own"), 1.0, "the episodes' own bytes", "<= 1.12")
        )
    return [row for case in CASES for row in (local_rows[case.name], remote_rows[case.name])], verdicts
