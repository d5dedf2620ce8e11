"""ResNet-50 v1.5 in PyTorch, one SGD step.

meshcast predict examples/pytorch/resnet.py:train --on h200
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def unit(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce = unit(inputs, width, 1)
        self.middle = unit(width, width, 3, stride)
        self.expand = unit(width, 4 * width, 1)
        changes = stride != 1 or inputs != 4 * width
        self.shortcut = unit(inputs, 4 * width, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.expand(F.relu(self.middle(F.relu(self.reduce(x)))))
        return F.relu(h + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = unit(3, width, 7, 2)
        layers = []
        inputs = width
        for stage, count in enumerate(blocks):
            for index in range(count):
                layers.append(Bottleneck(inputs, width * 2**stage, 2 if stage and not index else 1))
                inputs = 4 * width * 2**stage
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(images)), 3, 2, padding=1)
        return self.head(self.layers(x).mean(dim=(2, 3)))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels)


def train(batch: int = 64) -> tuple[nn.Module, tuple[Tensor], dict[str, object]]:
    """One SGD step in bfloat16 over fp32 weights."""
    with torch.device("meta"):
        module = ResNet()
        images, labels = torch.empty(batch, 3, 224, 224), torch.empty(batch, dtype=torch.long)
    options = {
        "train": True,
        "loss": cross_entropy,
        "targets": (labels,),
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5),
        "compute_dtype": "bfloat16",
    }
    return module, (images,), options
