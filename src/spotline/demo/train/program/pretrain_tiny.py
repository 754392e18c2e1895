"""Pre-train the small Llama that the jobs of the proof tune: once, on the base source."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# See train_tiny.py.
sys.modules["sklearn"] = None  # type: ignore[assignment]

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spotline.demo.train.tokens import TokenSource

_BATCH = 16
_LEARNING_RATE = 3e-3


def pretrain(folder: Path, *, steps: int, seed: int) -> float:
    """Train from nothing and write the model; returns the loss of the last batch, nats per token."""
    # More threads than free cores wait for each other longer than they compute.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    source = TokenSource(seed=seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=source.vocabulary,
            hidden_size=160,
            intermediate_size=448,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=source.length,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    loss = torch.tensor(0.0)
    for step in range(steps):
        tokens = torch.from_numpy(source.sequences(step * _BATCH, _BATCH))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    return float(loss.detach())


def main(arguments: Sequence[str]) -> None:
    """Read the command line and pre-train."""
    parser = argparse.ArgumentParser(prog="pretrain_tiny.py", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    stated = parser.parse_args(arguments)
    loss = pretrain(stated.folder, steps=stated.steps, seed=stated.seed)
    sys.stdout.write(f"loss {loss:.4f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
