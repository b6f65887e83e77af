"""Writes tests/data/oracles/streaming_order/{pools,shards}.json.

The rules of facts 6.2 to 6.4 in the plainest Python, with numpy's own generator: what the C++ classes
must equal, in random shapes. Usage: generate_order_oracle.py OUTPUT_DIRECTORY
"""

import json
import pathlib
import random
import sys

import numpy


def coverage(frames, sizes, pool, budget, strategy, seed, epoch):
    """Yields the (episode, frame) pairs of one epoch; `frames` and `sizes` are by episode."""
    generator = numpy.random.default_rng([seed, epoch])
    pending = [episode for episode, n in enumerate(frames) if n > 0]
    generator.shuffle(pending)
    residents = {}
    round_list = []

    def admit():
        while len(residents) < pool:
            room = budget - sum(sizes[episode] for episode in residents)
            chosen = next((episode for episode in pending if sizes[episode] <= room), None)
            if chosen is None:
                return
            pending.remove(chosen)
            order = list(range(frames[chosen]))
            generator.shuffle(order)
            residents[chosen] = order

    admit()
    while residents:
        if strategy == "remaining":
            target = int(generator.integers(sum(map(len, residents.values()))))
            for episode, order in residents.items():
                if target < len(order):
                    break
                target -= len(order)
        else:
            if not round_list:
                round_list = list(residents)
                generator.shuffle(round_list)
            episode = round_list.pop()
        yield episode, residents[episode].pop()
        if not residents[episode]:
            del residents[episode]
            admit()


def pool_cases(draw):
    for number in range(60):
        count = draw.choice([1, 2, 5, 20, 100])
        longest = draw.choice([1, 3, 12, 40])
        frames = [draw.randint(0 if count > 1 else 1, longest) for _ in range(count)]
        frames[0] = max(frames[0], 1)
        sizes = [n * draw.randint(5, 15) for n in frames]
        # From one episode at a time, over a budget that binds now and then, to none that matters.
        budget = max(sizes) * draw.choice([1, 2, 3]) if number % 3 else sum(sizes) + 1
        case = {
            "frames": frames,
            "sizes": sizes,
            "pool_size": draw.choice([1, 2, 3, 8, 32, 40]),
            "byte_budget": budget,
            "strategy": draw.choice(["remaining", "round_robin"]),
            "seed": draw.choice([0, 42, 1000, 2**32 + 5]),
            "epoch": draw.choice([0, 1, 7]),
        }
        order = list(coverage(*(case[key] for key in ("frames", "sizes", "pool_size", "byte_budget",
                                                      "strategy", "seed", "epoch"))))
        yield case | {"episodes": [e for e, _ in order], "order": [f for _, f in order]}


def split(frames, bins):
    """The bin of every episode: the longest first, each into the bin with the fewest frames."""
    load = [0] * bins
    result = [0] * len(frames)
    for episode in sorted(range(len(frames)), key=lambda e: (-frames[e], e)):
        lightest = min(range(bins), key=lambda b: (load[b], b))
        load[lightest] += frames[episode]
        result[episode] = lightest
    return result


def shard_cases(draw):
    for _ in range(40):
        count = draw.choice([1, 3, 10, 60])
        frames = [draw.randint(1, draw.choice([1, 4, 300])) for _ in range(count)]
        bins = draw.randint(1, 9)
        yield {"frames": frames, "bins": bins, "bin": split(frames, bins)}


def main():
    directory = pathlib.Path(sys.argv[1])
    for name, cases in (("pools", pool_cases), ("shards", shard_cases)):
        with open(directory / f"{name}.json", "w") as file:
            json.dump({"numpy": numpy.__version__, "cases": list(cases(random.Random(4)))}, file)
            file.write("\n")


if __name__ == "__main__":
    main()
