#!/usr/bin/env python3
"""Predict seconds a step and memory a GPU under DDP, FSDP and HSDP for 8 to 1,024 GPUs, to choose degrees with.

The model (alpha-beta, ring algorithms). A group of n ranks moves a tensor of B bytes in

    all-gather, reduce-scatter    (n - 1) * alpha + (n - 1) / n * B / beta
    all-reduce                    twice that

where alpha is the latency of a message and beta the bandwidth of one GPU's link: that of the links inside a node while the group lies
in one node, else that of the network. Backward takes two thirds of the computing time. Of one step,

    DDP     all-reduces the gradients; hidden behind backward except for the last bucket
    FSDP    all-gathers every unit before forward and again before backward, reduce-scatters its gradients after backward; each is
            hidden behind the computation of the neighbouring unit except for the first gather and the last reduction
    HSDP    as FSDP within a shard group, then all-reduces a shard's gradients over the replicas; hidden behind backward like DDP

What can be hidden is max(0, communication - computation) when it takes longer. Memory is parameters, gradients and Adam's two moments
(float32), plus two gathered units under sharding; activations are not in it.

Measure --step-s with one GPU: `updt_s` of lerobot-train's log line. The numbers are estimates: contention, stragglers and the network's
topology are not in the model.
"""

import argparse
import dataclasses
import signal

GPU_COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)
FLOAT32 = 4
BUCKET_BYTES = 25 << 20
GIB = 1 << 30


@dataclasses.dataclass
class Setup:
    parameters: float
    units: int
    step_s: float
    gpus_per_node: int
    node_gb_s: float
    network_gb_s: float
    node_latency_us: float
    network_latency_us: float
    wire_bytes: int

    def link(self, ranks: int, crosses_nodes: bool) -> tuple[float, float]:
        """Latency in seconds and bytes a second for a group."""
        if crosses_nodes and ranks > 1:
            return self.network_latency_us * 1e-6, self.network_gb_s * 1e9
        return self.node_latency_us * 1e-6, self.node_gb_s * 1e9

    def half_ring_s(self, ranks: int, size: float, crosses_nodes: bool) -> float:
        """All-gather or reduce-scatter of `size` bytes in all."""
        if ranks == 1:
            return 0.0
        alpha, beta = self.link(ranks, crosses_nodes)
        return (ranks - 1) * alpha + (ranks - 1) / ranks * size / beta


@dataclasses.dataclass
class Prediction:
    step_s: float
    memory_gib: float


def ddp(setup: Setup, gpus: int) -> Prediction:
    size = setup.parameters * setup.wire_bytes
    buckets = max(1, round(size / BUCKET_BYTES))
    crosses = gpus > setup.gpus_per_node
    bucket_s = 2 * setup.half_ring_s(gpus, size / buckets, crosses)
    backward_s = setup.step_s * 2 / 3
    exposed = bucket_s + max(0.0, (buckets - 1) * bucket_s - backward_s)
    return Prediction(setup.step_s + exposed, 4 * setup.parameters * FLOAT32 / GIB)


def sharded(setup: Setup, replicas: int, shards: int) -> Prediction:
    gpus = replicas * shards
    unit_bytes = setup.parameters * setup.wire_bytes / setup.units
    crosses = shards > setup.gpus_per_node
    move_s = setup.half_ring_s(shards, unit_bytes, crosses)
    forward_s, backward_s = setup.step_s / 3, setup.step_s * 2 / 3
    replicas_cross = gpus > setup.gpus_per_node
    replica_s = 2 * setup.half_ring_s(replicas, unit_bytes / shards, replicas_cross) if replicas > 1 else 0.0
    forward_moves = (setup.units - 1) * move_s
    backward_moves = (setup.units - 1) * (2 * move_s + replica_s)
    exposed = 2 * move_s + replica_s + max(0.0, forward_moves - forward_s) + max(0.0, backward_moves - backward_s)
    state = 4 * setup.parameters * FLOAT32 / shards
    return Prediction(setup.step_s + exposed, (state + 2 * unit_bytes) / GIB)


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=51.6e6, help="of the policy (default: %(default)g, the default ACT)")
    parser.add_argument("--units", type=int, default=16, help="wrap units of about equal size, the root counted (default: %(default)s)")
    parser.add_argument("--step-s", type=float, required=True, help="measured seconds a step on one GPU, with the batch size of one rank")
    parser.add_argument("--gpus-per-node", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--node-gb-s", type=float, default=300, help="GB/s of one GPU to its neighbours in the node (default: %(default)s)")
    parser.add_argument("--network-gb-s", type=float, default=25, help="GB/s of the network for one GPU (default: %(default)s)")
    parser.add_argument("--node-latency-us", type=float, default=8, help="(default: %(default)s)")
    parser.add_argument("--network-latency-us", type=float, default=20, help="(default: %(default)s)")
    parser.add_argument("--wire-bytes", type=int, choices=(2, 4), default=2, help="bytes of an element on the wire: 2 for bf16 and fp16 (default: 2)")
    arguments = parser.parse_args()
    if min(arguments.parameters, arguments.units, arguments.step_s, arguments.node_gb_s, arguments.network_gb_s) <= 0:
        parser.error("sizes, times and speeds must be positive")
    setup = Setup(**vars(arguments))

    print(f"{'GPUs':>5}  {'layout':<22} {'s/step':>8} {'efficiency':>10} {'GiB/GPU':>8}")
    for gpus in GPU_COUNTS:
        shards = min(setup.gpus_per_node, gpus)
        rows = [("DDP", ddp(setup, gpus)), (f"FSDP dp_shard={gpus}", sharded(setup, 1, gpus))]
        if gpus > shards:
            rows.append((f"HSDP {gpus // shards} x {shards}", sharded(setup, gpus // shards, shards)))
        for name, prediction in rows:
            efficiency = setup.step_s / prediction.step_s
            print(f"{gpus:>5}  {name:<22} {prediction.step_s:>8.4f} {efficiency:>9.0%} {prediction.memory_gib:>8.2f}")


if __name__ == "__main__":
    main()
