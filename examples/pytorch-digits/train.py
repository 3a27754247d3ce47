"""Learn to read handwritten digits. The script is `plain.py` with changes in the lines that mention `training`.

An interruption at any point leaves the final weights equal to those of a run that was left alone.
"""

import argparse
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from spotkeep import ResumableTraining


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))

    def forward(self, images):
        return self.classifier(self.features(images))


def train(options, model, device, train_loader, optimizer, scaler, epoch):
    model.train()
    for batch_index, (images, labels) in enumerate(train_loader, train_loader.start):
        images, labels = images.to(device), labels.to(device)
        images = images + 0.1 * torch.randn_like(images)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if batch_index % options.log_interval == 0:
            print(f"epoch {epoch} [{batch_index}/{len(train_loader)}] loss {loss.item():.6f}", flush=True)


def test(model, device, test_loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in test_loader:
            right += (model(images.to(device)).argmax(dim=1).cpu() == labels).sum().item()
    print(f"test set: accuracy {right}/{len(test_loader.dataset)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--limit", type=int, default=1440, help="images to learn from")
    parser.add_argument("--log-interval", type=int, default=10)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    dataset = TensorDataset(images, torch.tensor(labels))
    train_set = torch.utils.data.Subset(dataset, range(options.limit))
    test_set = torch.utils.data.Subset(dataset, range(1440, len(dataset)))
    train_loader = DataLoader(train_set, options.batch_size, shuffle=True, num_workers=options.workers)
    test_loader = DataLoader(test_set, 1000)

    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=options.gamma)
    scaler = torch.amp.GradScaler(device.type)

    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    training = ResumableTraining(state, every_seconds="auto")
    train_loader = training.loader(train_loader)
    for epoch in training.epochs(range(1, options.epochs + 1)):
        train(options, model, device, train_loader, optimizer, scaler, epoch)
        test(model, device, test_loader)
        scheduler.step()

    directory = Path(os.environ.get("SM_MODEL_DIR", "model"))
    directory.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), directory / "model.pt")


if __name__ == "__main__":
    main()
