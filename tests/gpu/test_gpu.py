"""Training on GPUs: precisions, checkpoints and layouts, by whole runs of the programs. scripts/test-gpu runs this."""

import gzip
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(os.environ["LEROBOT_BIN"])
DEVICE = os.environ.get("LEROBOT_TEST_DEVICE", "cuda")
STEPS = 20

# Without noise and padding a step depends on its samples alone, not on who has which.
TINY_ACT = [
    "--dataset.repo_id=lerobot/pusht_sim",
    f"--dataset.root={PROJECT / 'data' / 'pusht_sim'}",
    "--policy.type=act",
    "--policy.push_to_hub=false",
    "--policy.pretrained_backbone_weights=null",
    "--policy.dim_model=64",
    "--policy.n_heads=4",
    "--policy.dim_feedforward=128",
    "--policy.chunk_size=1",
    "--policy.n_action_steps=1",
    "--policy.use_vae=false",
    "--policy.dropout=0.0",
    "--policy.optimizer_lr=1e-4",
    "--num_workers=2",
    "--log_freq=1",
    "--log_samples=true",
]


def gpus() -> int:
    if DEVICE == "cpu":
        return 4
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True)
    return len(re.findall(r"^GPU ", listed.stdout, re.M))


def needs(count: int):
    return unittest.skipUnless(gpus() >= count, f"needs {count} GPUs, this machine has {gpus()}")


class GpuTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lerobot gpu ")))

    def output(self, name: str) -> pathlib.Path:
        return self.folder / name

    def run_train(self, flags: list, ranks: int = 1) -> str:
        launch = [PROGRAMS / "lerobot-launch", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        command = [str(part) for part in [*launch, PROGRAMS / "lerobot-train", *flags]]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        return done.stdout

    def train(self, name: str, *flags: str, ranks: int = 1, batch: int = 8, device: str = DEVICE) -> str:
        fixed = [f"--policy.device={device}", f"--batch_size={batch // ranks}", f"--steps={STEPS}", f"--output_dir={self.output(name)}"]
        return self.run_train([*TINY_ACT, *fixed, *flags], ranks)

    def resume(self, name: str, *flags: str, ranks: int = 1, batch: int = 8) -> str:
        checkpoint = self.output(name) / "checkpoints" / f"{STEPS // 2:06}"
        return self.run_train(["--resume=true", f"--config_path={checkpoint}", f"--batch_size={batch // ranks}", *flags], ranks)

    def losses(self, name: str, ranks: int = 1) -> dict[int, float]:
        mean: dict[int, float] = {}
        for rank in range(ranks):
            for line in (self.output(name) / f"samples.rank{rank}.jsonl").read_text().splitlines():
                record = json.loads(line)
                mean[record["step"]] = mean.get(record["step"], 0.0) + record["loss"] / ranks
        return mean

    def assert_close(self, actual: dict[int, float], expected: dict[int, float], relative: float):
        self.assertEqual(sorted(actual), sorted(expected))
        for step, loss in expected.items():
            self.assertAlmostEqual(actual[step], loss, delta=relative * abs(loss), msg=f"step {step}")


class OneGpu(GpuTest):
    def test_float32_has_the_losses_of_the_cpu(self):
        self.train("gpu")
        self.train("cpu", device="cpu")
        self.assert_close(self.losses("gpu"), self.losses("cpu"), 0.02)

    def test_bf16_stays_close_to_float32(self):
        self.train("no")
        self.train("bf16", "--accelerator.mixed_precision=bf16")
        self.assert_close(self.losses("bf16"), self.losses("no"), 0.1)

    @unittest.skipIf(DEVICE == "cpu", "fp16 needs an accelerator")
    def test_fp16_scales_its_loss_and_goes_on_with_the_scale(self):
        log = self.train("fp16", "--accelerator.mixed_precision=fp16", f"--save_freq={STEPS // 2}")
        self.assertIn(" scale:", log)
        state = self.output("fp16") / "checkpoints" / f"{STEPS:06}" / "training_state" / "scaler_state.json"
        self.assertEqual(set(json.loads(state.read_text())), {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"})
        self.resume("fp16")

    def test_a_resumed_run_repeats_the_one_that_never_stopped(self):
        self.train("run", f"--save_freq={STEPS // 2}")
        before = self.losses("run")
        self.resume("run")
        self.assert_close(self.losses("run"), before, 1e-3)


    def test_the_parts_of_a_step_add_up_to_its_time(self):
        self.train("run")
        lines = [json.loads(line) for line in (self.output("run") / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if "loss" in line][STEPS // 2 :]
        parts = sum(value for line in lines for key, value in line.items() if key.startswith("time_"))
        wall = (lines[-1]["unix_time"] - lines[0]["unix_time"]) * len(lines) / (len(lines) - 1)
        self.assertAlmostEqual(parts, wall, delta=0.2 * wall)
        self.assertTrue(all(line["time_backward_s"] > 0 for line in lines))

    def test_a_profile_shows_what_the_gpu_does(self):
        self.train("run", "--profile.steps=3:4")
        with gzip.open(self.output("run") / "profile" / "steps_3_4.json.gz") as file:
            events = json.load(file)["traceEvents"]
        names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertTrue(any(name.startswith("rank 0 (") for name in names), names)
        if DEVICE != "cpu":
            self.assertIn("rank 0 GPU 0", names)
            self.assertTrue(any(event.get("cat") == "kernel" for event in events))


class SeveralGpus(GpuTest):
    def expect_layout_like_ddp(self, ranks: int, *flags: str):
        self.train("ddp", ranks=ranks)
        self.train("sharded", *flags, ranks=ranks)
        self.assert_close(self.losses("sharded", ranks), self.losses("ddp", ranks), 1e-3)

    @needs(2)
    def test_ddp_trains_like_one_process(self):
        self.train("one")
        self.train("two", ranks=2)
        self.assert_close(self.losses("two", 2), self.losses("one"), 0.01)

    @needs(2)
    def test_fsdp_trains_like_ddp(self):
        self.expect_layout_like_ddp(2, "--parallelism.dp_shard=2")

    @needs(4)
    def test_hsdp_trains_like_ddp(self):
        self.expect_layout_like_ddp(4, "--parallelism.dp_replicate=2", "--parallelism.dp_shard=2")

    @needs(2)
    def test_fsdp_in_low_precision(self):
        self.train("no", "--parallelism.dp_shard=2", ranks=2)
        for precision in ["bf16"] + (["fp16"] if DEVICE == "cuda" else []):
            self.train(precision, "--parallelism.dp_shard=2", f"--accelerator.mixed_precision={precision}", ranks=2)
            self.assert_close(self.losses(precision, 2), self.losses("no", 2), 0.1)

    @needs(2)
    def test_cpu_offload_trains_like_fsdp(self):
        self.train("kept", "--parallelism.dp_shard=2", ranks=2)
        self.train("offloaded", "--parallelism.dp_shard=2", "--accelerator.fsdp.cpu_offload=true", ranks=2)
        self.assert_close(self.losses("offloaded", 2), self.losses("kept", 2), 1e-3)

    @needs(2)
    def test_shards_go_on_in_one_process(self):
        self.train("run", "--parallelism.dp_shard=2", "--checkpoint_format=dcp", f"--save_freq={STEPS // 2}", ranks=2)
        before = self.losses("run", 2)
        self.resume("run")
        after = self.losses("run")
        expected = {step: before[step] for step in range(STEPS // 2 + 1, STEPS + 1)}
        self.assert_close({step: after[step] for step in expected}, expected, 0.01)


if __name__ == "__main__":
    unittest.main()
