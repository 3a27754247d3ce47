"""Learn a function that is drawn at random, on several nodes that each hold a part of the model.

An interruption at any point leaves the final weights equal to those of a run that was left alone, to the bit. This
holds also where the run goes on with another number of nodes.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

from spotkeep import Checkpointer, GlobalBatches
from spotkeep.integrations.virtual_ranks import VirtualRanks

TRAINED_ON, TESTED_ON = 1408, 320


class SamplesTaken:
    """How often this rank has taken each sample. The counts of all ranks together are those of the run."""

    def __init__(self):
        self.counts = torch.zeros(TRAINED_ON, dtype=torch.int64)

    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state):
        self.counts.copy_(state["counts"])

    def load_rank_states(self, states, *, rank, world_size):
        self.counts.zero_()
        for state in states[rank::world_size]:
            self.counts += state["counts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="samples of all ranks together")
    parser.add_argument("--virtual-ranks", type=int, default=4, help="a multiple of the number of ranks")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="0 trains at full speed")
    options = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    on_gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpus else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpus else torch.device("cpu")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)).to(device)
    for layer in (net[0], net[3], net):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.005)
    # The batch of a step is divided among the virtual ranks, whose number stays, and each rank has some of them.
    ranks = VirtualRanks(options.virtual_ranks, net, optimizer, seed=7)

    drawn = torch.Generator().manual_seed(7)
    samples = torch.randn(TRAINED_ON + TESTED_ON, 64, generator=drawn)
    labels = (samples @ torch.randn(64, 10, generator=drawn)).argmax(dim=1)
    batches = {
        number: GlobalBatches(
            TRAINED_ON, batch_size=options.batch_size, seed=7, rank=number, world_size=options.virtual_ranks
        )
        for number in ranks.numbers
    }
    steps_of_epoch = TRAINED_ON // options.batch_size
    taken = SamplesTaken()

    state = {"model": net, "optimizer": optimizer, "ranks": ranks}
    with Checkpointer(state, per_rank={"samples": taken}, every_steps=options.save_every) as checkpointer:
        for step in checkpointer.steps(options.epochs * steps_of_epoch):
            epoch, first = divmod(step, steps_of_epoch)
            optimizer.zero_grad()
            for number in ranks.micro_batches():
                batch = next(batches[number].batches(epoch, first))
                nn.functional.cross_entropy(net(samples[batch].to(device)), labels[batch].to(device)).backward()
                taken.counts[batch] += 1
            ranks.clip_grad_norm_(1.0)
            optimizer.step()
            time.sleep(options.seconds_per_step)
            if first == steps_of_epoch - 1:
                net.eval()
                with torch.no_grad():
                    found = net(samples[TRAINED_ON:].to(device)).argmax(dim=1).cpu()
                net.train()
                if dist.get_rank() == 0:
                    right = (found == labels[TRAINED_ON:]).float().mean().item()
                    print(f"epoch {epoch}: accuracy {right:.3f} on {dist.get_world_size()} ranks", flush=True)

    weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    counts = taken.counts.to(device)
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        model = Path(os.environ.get("SM_MODEL_DIR", "."))
        # A copy, because a part that the ranks do not divide evenly comes with filler behind it.
        torch.save({name: weight.clone() for name, weight in weights.items()}, model / "model.pt")
        # A rehearsal reads it: a sample that came twice, or never, has another count than in a run that was left alone.
        (model / "samples-taken.json").write_text(json.dumps(counts.tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
