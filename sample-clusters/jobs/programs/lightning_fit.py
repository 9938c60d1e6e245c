"""Training of a small network on made-up data with Lightning: gloo on CPUs, NCCL on GPUs."""

import argparse
import os
import platform

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sine(lightning.LightningModule):
    """Learns y = sin(sum x / 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        if (index + 1) % 10 == 0:
            total = self.trainer.max_steps
            print(f"step {self.global_step + 1:5d}/{total}  loss {loss.item():.5f}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(options.steps * options.batch * int(os.environ["WORLD_SIZE"]), 8)
    data = TensorDataset(x, torch.sin(x.sum(1, keepdim=True) / 2))
    trainer = lightning.Trainer(
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_steps=options.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    print(f"rank {trainer.global_rank} of {trainer.world_size} on {platform.node()}", flush=True)
    # Lightning gives each rank its own part of the data.
    trainer.fit(Sine(), DataLoader(data, batch_size=options.batch, shuffle=True))
    print(f"rank {trainer.global_rank} is done", flush=True)


if __name__ == "__main__":
    main()
