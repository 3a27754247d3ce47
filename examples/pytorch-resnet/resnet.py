"""ResNet-50 for small images, in plain torch.

It is the bottleneck network of "Deep Residual Learning for Image Recognition" (He, Zhang, Ren, Sun, 2015). Its stem is
that for small images, a 3x3 convolution of stride 1 and no pooling. The paper's stem is a 7x7 convolution of stride 2
and a max pool.
"""

from __future__ import annotations

import torch
from torch import nn

RESNET50_BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1 to fewer channels, 3x3, 1x1 to four times as many, and a way around all three."""

    def __init__(self, channels_in: int, channels: int, *, stride: int) -> None:
        super().__init__()
        channels_out = channels * EXPANSION
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.around = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.around(images))


class ResNet(nn.Module):
    """Args are the blocks of each of the four stages, the channels of the first one, and the classes."""

    def __init__(self, *, classes: int, width: int = 64, blocks: tuple[int, ...] = RESNET50_BLOCKS) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages: list[nn.Module] = []
        channels_in = width
        for number, count in enumerate(blocks):
            channels = width * 2**number
            for index in range(count):
                stride = 2 if number and index == 0 else 1
                stages.append(Bottleneck(channels_in, channels, stride=stride))
                channels_in = channels * EXPANSION
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels_in, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.stages(self.stem(images))
        scores: torch.Tensor = self.head(features.mean(dim=(2, 3)))
        return scores
