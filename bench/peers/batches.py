"""A torch DataLoader as lerobot-train sets it up, and a line as each batch arrives."""

import torch


def print_batches(dataset, *, workers: int, batches: int, batch_size: int, sampler=None) -> None:
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        persistent_workers=workers > 0,
        multiprocessing_context="spawn" if workers else None,
    )
    for number, _ in zip(range(batches), loader):
        print("batch", number, flush=True)
