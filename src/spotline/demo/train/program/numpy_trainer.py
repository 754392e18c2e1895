"""A training program of numpy alone: a bigram model of a token source, data-parallel over TCP.

It is what a user would write against `spotline.trainer`, and small enough to be run, warned, killed
and resized within seconds. Ranks add up their gradients at rank 0 and agree there on integers; what
a rank contributes to an update it notes in its diary first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spotline.demo.train.diary import Diary
from spotline.demo.train.tokens import TokenSource
from spotline.trainer import attach

FloatArray = npt.NDArray[np.float64]

_LEARNING_RATE = 4.0
_MOMENTUM = 0.9
_HELD_OUT = 64
_CONNECT_S = 60.0
_MODEL_FILE = "model.npz"
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class BigramRun:
    """What is trained. `row_s` are wall seconds that a row takes, in which it does not compute."""

    diary: Path
    result: Path
    steps: int
    batch: int
    task: int
    seed: int
    row_s: float
    save_s: float
    interval_s: float | None


class BigramModel:
    """Logits of the next token by the present one, trained by gradient descent with momentum."""

    def __init__(self, vocabulary: int) -> None:
        self.logits: FloatArray = np.zeros((vocabulary, vocabulary))
        self.velocity: FloatArray = np.zeros_like(self.logits)

    def loss_and_gradient(self, rows: npt.NDArray[np.int64]) -> tuple[float, FloatArray]:
        """Sum over the tokens of `rows` of the loss in nats, and its gradient."""
        before, after = rows[:, :-1].ravel(), rows[:, 1:].ravel()
        shifted = self.logits - self.logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        counts = np.zeros_like(self.logits)
        np.add.at(counts, (before, after), 1.0)
        gradient = np.exp(logs) * counts.sum(axis=1, keepdims=True) - counts
        return float(-(counts * logs).sum()), gradient

    def update(self, gradient: FloatArray) -> None:
        """Make one step with the mean gradient per token."""
        self.velocity = _MOMENTUM * self.velocity + gradient
        self.logits = self.logits - _LEARNING_RATE * self.velocity

    def digest(self) -> str:
        """SHA-256 over all numbers that the training goes on with."""
        return hashlib.sha256(self.logits.tobytes() + self.velocity.tobytes()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write all of it into a folder."""
        np.savez(folder / _MODEL_FILE, logits=self.logits, velocity=self.velocity)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        with np.load(folder / _MODEL_FILE) as stored:
            self.logits, self.velocity = stored["logits"], stored["velocity"]


class Ring:
    """Ranks around rank 0: it adds up, or takes the largest, and tells the others."""

    def __init__(self, rank: int, world: int, address: tuple[str, int]) -> None:
        self._peers: list[socket.socket] = []
        self._rank = rank
        if world == 1:
            return
        if rank == 0:
            self._peers = _accepted(world, address)
        else:
            self._peers = [_connected(rank, address)]

    def sum(self, values: FloatArray) -> FloatArray:
        """Add up over the ranks, in their order."""
        return self._combined(values, np.add)

    def largest(self, values: Sequence[int]) -> Sequence[int]:
        """Agree on integers: the `agreement` of a session."""
        return [int(value) for value in self._combined(np.array(values, dtype=float), np.maximum)]

    def _combined(self, values: FloatArray, combine: np.ufunc) -> FloatArray:
        if not self._peers:
            return values
        if self._rank:
            (hub,) = self._peers
            _send(hub, values)
            return _received(hub, values.shape)
        total = values
        for peer in self._peers:
            total = combine(total, _received(peer, values.shape))
        for peer in self._peers:
            _send(peer, total)
        return total


def _accepted(world: int, address: tuple[str, int]) -> list[socket.socket]:
    by_rank: dict[int, socket.socket] = {}
    with socket.create_server(address, reuse_port=False) as server:
        server.settimeout(_CONNECT_S)
        while len(by_rank) < world - 1:
            peer, _ = server.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            (rank,) = struct.unpack("!I", _exactly(peer, 4))
            by_rank[rank] = peer
    return [by_rank[rank] for rank in sorted(by_rank)]


def _connected(rank: int, address: tuple[str, int]) -> socket.socket:
    give_up = time.monotonic() + _CONNECT_S
    while True:
        try:
            hub = socket.create_connection(address, timeout=_CONNECT_S)
        except ConnectionRefusedError:
            # Rank 0 is not up yet.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
        else:
            hub.settimeout(None)
            hub.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hub.sendall(struct.pack("!I", rank))
            return hub


def _send(peer: socket.socket, values: FloatArray) -> None:
    body = np.ascontiguousarray(values, dtype=np.float64).tobytes()
    peer.sendall(_LENGTH.pack(len(body)) + body)


def _received(peer: socket.socket, shape: tuple[int, ...]) -> FloatArray:
    (size,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    return np.frombuffer(_exactly(peer, size), dtype=np.float64).reshape(shape)


def _exactly(peer: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(size - len(parts))
        if not part:
            raise ConnectionError("a rank of this generation is gone")
        parts += part
    return bytes(parts)


def train(settings: BigramRun, variables: Mapping[str, str]) -> None:
    """Train to the last step, or exit with 75 when told to stop."""
    rank, world = int(variables.get("RANK", "0")), int(variables.get("WORLD_SIZE", "1"))
    address = (variables.get("MASTER_ADDR", "127.0.0.1"), int(variables.get("MASTER_PORT", "0")))
    ring = Ring(rank, world, address)
    session = attach(agreement=ring.largest, interval_s=settings.interval_s)
    if session.result() is not None:
        # Killed after it was done, before that was known.
        return
    source = TokenSource(task=settings.task, seed=settings.seed)
    model, step = BigramModel(source.vocabulary), 0
    if (found := session.resume()) is not None:
        model.load(found.path)
        step = found.step
    diary = Diary(settings.diary, generation=session.allocation.generation, rank=rank)
    diary.began(step=step, world=world, parameters=model.digest())
    tokens = settings.batch * (source.length - 1)
    while step < settings.steps:
        positions = session.samples(
            step, global_batch=settings.batch, rows=settings.steps * settings.batch, seed=None
        )
        rows = np.stack([source.sequence(position) for position in positions])
        loss, gradient = model.loss_and_gradient(rows)
        time.sleep(settings.row_s * len(positions))
        diary.contributes(step + 1, positions)
        summed = ring.sum(np.append(gradient.ravel(), loss)) / tokens
        model.update(summed[:-1].reshape(gradient.shape))
        step += 1
        if rank == 0:
            diary.lost(step, float(summed[-1]))
            diary.reached(step, model.digest())
        session.report(step=step, done=step * settings.batch * source.length)
        # Of the last step there is the result instead.
        if step < settings.steps and session.should_checkpoint(step):
            with session.checkpoint(
                step=step, done=step * settings.batch * source.length
            ) as saving:
                if saving.writes:
                    model.save(saving.path)
                    time.sleep(settings.save_s)
        if session.should_stop and step < settings.steps:
            session.exit_to_resume()
    held_out, _ = model.loss_and_gradient(source.held_out(_HELD_OUT))
    held_out /= _HELD_OUT * (source.length - 1)
    if rank == 0:
        settings.result.mkdir(parents=True, exist_ok=True)
        model.save(settings.result)
        (settings.result / "result.json").write_text(json.dumps({"held_out_loss": held_out}))
        diary.ended(step, held_out_loss=held_out, parameters=model.digest())
    session.finish(settings.result, step=step, done=step * settings.batch * source.length)
    sys.stdout.write(f"held-out loss {held_out:.4f}\n")


def main(arguments: Sequence[str]) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(prog="numpy_trainer.py", description=__doc__)
    parser.add_argument("--diary", type=Path, required=True, help="folder of the diaries")
    parser.add_argument("--result", type=Path, default=Path("result"), help="folder of the result")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument(
        "--batch", type=int, default=8, help="sequences of an update, over all ranks"
    )
    parser.add_argument("--task", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--row-s", type=float, default=0.0, help="wall seconds that a row takes")
    parser.add_argument("--save-s", type=float, default=0.0, help="wall seconds that a save takes")
    parser.add_argument("--interval-s", type=float, default=None)
    stated = parser.parse_args(arguments)
    train(BigramRun(**vars(stated)), environ)


if __name__ == "__main__":
    main(sys.argv[1:])
