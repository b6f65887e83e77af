"""lerobot-launch stands in for torchrun: workers see the same variables, ranks meet, and torch's process groups work."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# What torchrun tells its own library, and what our docs/distributed.md says is different.
OWN_BUSINESS = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE", "PYTHON_EXEC", "_"}
STANDALONE = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}

DUMP = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps({"argv": sys.argv[2:], "variables": dict(os.environ)}))
"""

ALL_REDUCE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {value.item()}")
dist.destroy_process_group()
"""


@pytest.fixture(scope="session")
def launcher(programs) -> list:
    return [programs / "lerobot-launch"]


def run(command, *, check=True, **variables) -> subprocess.CompletedProcess:
    # conftest.py sets OMP_NUM_THREADS, which both leave alone.
    environment = {**os.environ, "PYTHON_EXEC": sys.executable, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def worker_variables(launcher, folder: pathlib.Path, options, world_size) -> list[dict]:
    folder.mkdir()
    script = folder / "dump.py"
    script.write_text(DUMP)
    run([*launcher, *options, script, folder, "--nnodes=9", "a b"])
    dumped = [json.loads((folder / str(rank)).read_text()) for rank in range(world_size)]
    assert all(dump["argv"] == ["--nnodes=9", "a b"] for dump in dumped)
    return [dump["variables"] for dump in dumped]


@pytest.mark.parametrize(
    "options, world_size, may_differ",
    [
        (["--standalone", "--nproc-per-node=2"], 2, STANDALONE),
        (["--nproc_per_node", "2", "--role=trainer", "--rdzv-id=job7", "--max-restarts=2", "--master-port=29517"], 2, set()),
        (["--nnodes=1:1", "--rdzv-backend=static", "--rdzv-endpoint=localhost:29518"], 1, set()),
    ],
)
def test_workers_see_torchruns_variables(launcher, tmp_path, options, world_size, may_differ):
    theirs = worker_variables(TORCHRUN, tmp_path / "theirs", options, world_size)
    ours = worker_variables(launcher, tmp_path / "ours", options, world_size)
    for rank in range(world_size):
        names = (theirs[rank].keys() | ours[rank].keys()) - OWN_BUSINESS - may_differ
        assert {name: ours[rank].get(name) for name in names} == {name: theirs[rank].get(name) for name in names}
        assert may_differ <= ours[rank].keys()


@pytest.mark.parametrize("options", [["--standalone"], ["--rdzv-endpoint=localhost:0"], ["--rdzv-backend=c10d", "--master-port=29519"]])
def test_process_groups_of_torch_meet(launcher, tmp_path, options):
    script = tmp_path / "all_reduce.py"
    script.write_text(ALL_REDUCE)
    done = run([*launcher, "--nproc-per-node=3", *options, script])
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] rank {rank} of 3 has 6.0" for rank in range(3)]


def test_two_launchers_make_one_job(launcher, tmp_path):
    script = tmp_path / "all_reduce.py"
    script.write_text(ALL_REDUCE)
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-endpoint=127.0.0.1:29520"]
    environment = {**os.environ, "PYTHON_EXEC": sys.executable}
    other = subprocess.Popen([*launcher, *options, "--node-rank=1", script], env=environment, stdout=subprocess.PIPE, text=True)
    first = run([*launcher, *options, "--node-rank=0", script])
    output, _ = other.communicate(timeout=120)
    assert other.returncode == 0
    assert [*first.stdout.splitlines(), *output.splitlines()] == ["[rank 0] rank 0 of 2 has 3.0", "[rank 1] rank 1 of 2 has 3.0"]


def test_an_exception_in_python_is_the_failure_that_is_shown(launcher, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("import os, time\nif os.environ['RANK'] == '1': raise ValueError('bad batch')\ntime.sleep(100)\n")
    done = run([*launcher, "--standalone", "--nproc-per-node=2", script], check=False)
    assert done.returncode == 1
    assert "FAILED: rank 1 was the first" in done.stderr
    assert done.stderr.rstrip().endswith("  | ValueError: bad batch")


def test_a_module_is_started_as_python_m_does(launcher, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "train.py").write_text("import sys\nprint(__package__, sys.argv[1:])\n")
    done = run([*launcher, "-m", "pkg.train", "--steps=3"], PYTHONPATH=str(tmp_path))
    assert done.stdout == "[rank 0] pkg ['--steps=3']\n"


def test_the_launcher_loads_no_torch(launcher):
    linked = subprocess.run(["ldd", *launcher], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in linked and "torch" not in linked
