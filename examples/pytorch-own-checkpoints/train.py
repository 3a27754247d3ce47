"""Learn to read handwritten digits, with PyTorch, and keep checkpoints of its own. Nothing in it is Spotkeep's."""

import argparse
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def newest(checkpoint_dir):
    # The epoch's number has a fixed width, so the last name is the newest one.
    return max(checkpoint_dir.glob("checkpoint-*.pt"), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-dir", type=Path, default="/opt/ml/checkpoints")
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "model"))
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    pixels, labels = load_digits(return_X_y=True)
    images = TensorDataset(torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(images, args.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    done = 0
    args.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    found = newest(args.checkpoint_dir)
    if found is not None:
        state = torch.load(found, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        done = state["epoch"]
        print(f"loaded {found.name}", flush=True)

    for epoch in range(done + 1, args.epochs + 1):
        right = 0
        for batch, answers in loader:
            optimizer.zero_grad()
            scores = model(batch)
            nn.functional.cross_entropy(scores, answers).backward()
            optimizer.step()
            right += (scores.argmax(dim=1) == answers).sum().item()
        print(f"epoch {epoch}: accuracy {right / len(images):.3f}", flush=True)
        state = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save(state, args.checkpoint_dir / f"checkpoint-{epoch:03d}.pt")

    args.model_dir.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), args.model_dir / "model.pt")


if __name__ == "__main__":
    main()
