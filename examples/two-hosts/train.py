"""Learn a function that is drawn at random, on several hosts, by DistributedDataParallel.

An interruption at any point leaves the final weights equal to those of a run that was left alone.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from spotkeep import GlobalBatches, ResumableTraining


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="samples of all ranks together")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="0 trains at full speed")
    options = parser.parse_args()

    on_gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpus else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpus else torch.device("cpu")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(net)
    # A step that does not count: after the first one DistributedDataParallel adds gradients in another order.
    model(torch.zeros(1, 64, device=device)).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    optimizer.zero_grad()
    torch.manual_seed(100 + rank)

    drawn = torch.Generator().manual_seed(7)
    samples = torch.randn(1760, 64, generator=drawn)
    labels = (samples @ torch.randn(64, 10, generator=drawn)).argmax(dim=1)
    batches = GlobalBatches(1440, batch_size=options.batch_size, seed=7)

    training = ResumableTraining({"model": model, "optimizer": optimizer}, every_steps=options.save_every)
    loader = training.loader(DataLoader(TensorDataset(samples[:1440], labels[:1440]), batch_sampler=batches))
    for epoch in training.epochs(options.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device)).backward()
            optimizer.step()
            time.sleep(options.seconds_per_step)
        if rank == 0:
            with torch.no_grad():
                found = net.eval()(samples[1440:].to(device)).argmax(dim=1).cpu()
            net.train()
            right = (found == labels[1440:]).float().mean().item()
            print(f"epoch {epoch}: accuracy {right:.3f} on {dist.get_world_size()} ranks", flush=True)

    if rank == 0:
        torch.save(net.state_dict(), Path(os.environ.get("SM_MODEL_DIR", ".")) / "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
