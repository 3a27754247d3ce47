"""Train ResNet-50 on CIFAR-10, with checkpoints by step and at the end of each epoch.

Without a data channel `cifar10` it trains on scikit-learn's digits, and says so. Interrupted anywhere, on one and the
same machine, it ends with the weights of a run that was left alone.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
from images import Images, load_images
from resnet import RESNET50_BLOCKS, ResNet
from torch import nn

from spotkeep import Checkpointer


def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    channel = os.environ.get("SM_CHANNEL_CIFAR10")
    images = load_images(Path(channel) if channel else None)
    if channel is None:
        print("no data channel `cifar10`: training on scikit-learn's digits instead", flush=True)
    print(f"{images.name}: {len(images.train_labels)} images to learn from, on {device}", flush=True)

    model = ResNet(classes=10, width=options.width, blocks=tuple(options.blocks)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9, weight_decay=5e-4)
    steps_per_epoch = len(images.train_labels) // options.batch
    if options.max_steps:
        steps_per_epoch = min(steps_per_epoch, options.max_steps)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs)

    state = {
        "model": model,
        "optimizer": optimizer,
        "schedule": schedule,
        "random": torch.default_generator,
        "history": (history := {"accuracy": []}),
    }
    with Checkpointer(state, every_steps=options.checkpoint_every) as checkpointer:
        for epoch in checkpointer.epochs(options.epochs, steps_per_epoch=steps_per_epoch):
            order = epoch_order(len(images.train_labels), epoch.index, seed=options.seed)
            for index in epoch:
                batch = order[index * options.batch : (index + 1) * options.batch]
                inputs = augmented(images.train_images[batch]).to(device)
                loss = train_one_batch(model, optimizer, inputs, images.train_labels[batch].to(device))
                checkpointer.log(loss=loss, epoch=epoch.index)
            schedule.step()
            history["accuracy"].append(accuracy(model, images, device, batch_size=options.batch))
            print(f"epoch {epoch.index}: accuracy {history['accuracy'][-1]:.3f}", flush=True)

    directory = Path(os.environ.get("SM_MODEL_DIR", "model"))
    directory.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), directory / "model.pt")
    (directory / "history.json").write_text(json.dumps(history))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=200, metavar="STEPS")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage; 64 is ResNet-50")
    parser.add_argument("--blocks", type=int, nargs=4, default=list(RESNET50_BLOCKS), help="blocks of each stage")
    parser.add_argument("--max-steps", type=int, default=0, metavar="STEPS", help="at most so many steps an epoch")
    return parser.parse_args()


def epoch_order(count: int, epoch: int, *, seed: int) -> torch.Tensor:
    """Return the order of an epoch's images. Each epoch has its own order, which depends only on its number."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))


def augmented(images: torch.Tensor) -> torch.Tensor:
    """Shift the batch by up to four pixels and mirror half of the images. Random numbers come from the saved state."""
    down, right = (int(shift) for shift in torch.randint(-4, 5, (2,)))
    shifted = torch.roll(images, shifts=(down, right), dims=(2, 3))
    mirrored = torch.rand(len(images)) < 0.5
    return torch.where(mirrored[:, None, None, None], shifted.flip(3), shifted)


def train_one_batch(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor
) -> float:
    model.train()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def accuracy(model: nn.Module, images: Images, device: torch.device, *, batch_size: int) -> float:
    model.eval()
    right = 0
    for start in range(0, len(images.test_labels), batch_size):
        scores = model(images.test_images[start : start + batch_size].to(device))
        right += int((scores.argmax(dim=1).cpu() == images.test_labels[start : start + batch_size]).sum())
    return right / len(images.test_labels)


if __name__ == "__main__":
    main()
