"""The specification's command lines, literally: torchrun and accelerate launch start their target with Python."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import trainer

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29571"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes=2", "--multi_gpu", "--main_process_port=29572"]


def run(command, **variables) -> subprocess.CompletedProcess:
    done = subprocess.run(
        command, cwd=trainer.PROJECT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def train(launcher, program, output: pathlib.Path, **variables) -> subprocess.CompletedProcess:
    flags = {**trainer.TINY_ACT, **trainer.RUN, **trainer.dataset("toy_state"), "steps": 4, "output_dir": output, "log_samples": "true"}
    return run([*launcher, program, *trainer.as_arguments(flags)], **variables)


def steps(output: pathlib.Path, rank: int) -> list[dict]:
    return [json.loads(line) for line in (output / f"samples.rank{rank}.jsonl").read_text().splitlines()]


def lerobots_steps(rank: int) -> list[dict]:
    log = trainer.PROJECT / "tests" / "data" / "logs" / f"state_ddp2.rank{rank}.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()]


def expect_lerobots_run(output: pathlib.Path):
    for rank in (0, 1):
        for ours, theirs in zip(steps(output, rank), lerobots_steps(rank)[:4], strict=True):
            assert ours["index"] == theirs["index"]
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
            assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-5)


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_launchers_of_python_start_two_processes(programs, tmp_path, launcher):
    train(launcher, programs / "lerobot-train", tmp_path / "run")
    expect_lerobots_run(tmp_path / "run")


def test_torchrun_starts_it_without_python_too(programs, tmp_path):
    train([*TORCHRUN, "--no-python"], programs / "lerobot-train", tmp_path / "run")
    expect_lerobots_run(tmp_path / "run")


@pytest.fixture(scope="session")
def installed(programs, tmp_path_factory) -> pathlib.Path:
    """bin/ of an installation under a path with a space."""
    prefix = tmp_path_factory.mktemp("an installation") / "with spaces"
    subprocess.run(["cmake", "--install", programs.parent, "--prefix", prefix], check=True, capture_output=True)
    return prefix / "bin"


def test_installed_programs_run(installed):
    assert {path.name for path in installed.iterdir()} == {
        "lerobot-train", "lerobot-launch", "lerobot-convert-dcp", "lerobot-build-mp4-sidecar",
    }
    for program in installed.iterdir():
        assert "--" in run([program, "--help"]).stdout


@pytest.mark.parametrize("start", [[], ["sh"], [sys.executable]], ids=["itself", "sh", "python"])
def test_an_installed_start_file_passes_everything_on(installed, tmp_path, start):
    link = tmp_path / "a link"
    link.symlink_to(installed / "lerobot-train")
    done = subprocess.run([*start, link, "--no such=option", "'a b' \"$HOME\""], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--no such=option: unknown option" in done.stderr
    assert "'a b' \"$HOME\": unexpected" in done.stderr


def test_the_command_lines_of_the_documentation_work(installed, tmp_path):
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which("lerobot-train", path=path)
    train(TORCHRUN, found, tmp_path / "run", PATH=path)
    expect_lerobots_run(tmp_path / "run")
