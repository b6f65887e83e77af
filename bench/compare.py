"""Named comparisons of lerobot-train with the real LeRobot, in alternating rounds. scripts/bench runs this.

Prints a table of every configuration's medians and one JSON line for each compared quantity.
"""

import argparse
import importlib
import json
import sys

COMPARISONS = {
    "loader-map": "loader_map",
    "loader-streaming": "loader_streaming",
    "loader-remote": "loader_remote",
    "sidecar-build": "sidecar_build",
    "plan-scale": "plan_scale",
    "train-act": "train_act",
    "checkpoint": "checkpoint",
    "distributed-step": "distributed_step",
    "checkpoint-sharded": "checkpoint_sharded",
    "launch": "launch",
    "hub-download": "hub_download",
    "loader-hub": "loader_hub",
    "peft": "peft",
}


def print_table(rows, file=sys.stdout) -> None:
    quantities = list(dict.fromkeys(quantity for row in rows for quantity in row.values))
    cells = [["", *quantities]]
    for row in rows:
        cells.append([row.name, *(f"{row.median(q):.3f}" if q in row.values else "-" for q in quantities)])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        print("  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))]), file=file)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of: {', '.join(COMPARISONS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured (default: 3)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in COMPARISONS]
    if unknown or arguments.rounds < 1:
        parser.error(f"unknown comparison {unknown[0]}" if unknown else "--rounds must be at least 1")
    for name in arguments.names or COMPARISONS:
        rows, verdicts = importlib.import_module(COMPARISONS[name]).compare(arguments.rounds)
        print(f"\n{name}, medians of {arguments.rounds} rounds")
        print_table(rows)
        for verdict in verdicts:
            line = {
                "name": f"{name}.{verdict.name}",
                "unit": verdict.unit,
                "ours": round(verdict.ours, 4),
                "peer": round(verdict.peer, 4),
                "ratio": round(verdict.ratio, 4),
                "rounds": arguments.rounds,
                "peer_is": verdict.peer_is,
                "goal": verdict.goal,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
