"""Checkpoint files: the state of a training and its checksum. This module imports torch only where it needs it.

`torch.load` does not notice a changed byte. A state with other weights, or with another count of leased steps, must not
be continued, so the last 32 bytes of a file are the SHA-256 of the others.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.errors import InfrastructureError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["hold_to_device", "is_intact", "read_state", "weights_of", "write_state"]

_DIGEST = hashlib.sha256().digest_size


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state atomically and durably, readable by the owner only.

    Raises:
        OSError: the disk does not take it. Nothing is left of the file.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getbuffer()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.write(hashlib.sha256(content).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_state(path: Path) -> dict[str, Any]:
    """Return the state in a file, with all tensors on the CPU. No code from the file is executed.

    Raises:
        InfrastructureError: the file cannot be read, or its checksum does not match.
    """
    import torch

    try:
        content = path.read_bytes()
        if not _matches(content):
            raise ValueError("checksum")  # noqa: TRY301 - every cause has the same words
        state: dict[str, Any] = torch.load(io.BytesIO(content[:-_DIGEST]), weights_only=True, map_location="cpu")
    except Exception as error:
        raise InfrastructureError(
            "checkpoint-damaged",
            f"The checkpoint {path} is damaged. Restore the file from a copy, then resume the sweep.",
        ) from error
    return state


def hold_to_device(path: Path, kind: str) -> None:
    """Store the kind of device on which a run is made first. Refuse to repeat the run on another kind.

    With one key, the run is the same only on the same kind of device, because other kinds round in other ways.

    Raises:
        InfrastructureError: the file holds another kind, or cannot be read or written.
    """
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_state(path, {"device": kind})
        except OSError as error:
            raise InfrastructureError(
                "checkpoint-unwritable", f"{path} could not be written ({error}). Fix the disk, then resume the sweep."
            ) from error
        return
    first = read_state(path)["device"]
    if first != kind:
        raise InfrastructureError(
            "replay-device-changed",
            f"This run started on another kind of device ({first}), so this device ({kind}) cannot repeat it "
            "exactly. Resume the sweep on the kind of device on which it started.",
        )


def is_intact(path: Path) -> bool:
    """Return whether a file can be read and its checksum matches."""
    try:
        return _matches(path.read_bytes())
    except OSError:
        return False


def _matches(content: bytes) -> bool:
    return hashlib.sha256(memoryview(content)[:-_DIGEST]).digest() == content[-_DIGEST:]


def weights_of(checkpoint: Path, *, like: nn.Module, of: str) -> dict[str, Tensor]:
    """Return the weights of another training's checkpoint, and nothing else of it: neither its noise nor its sampling.

    Raises:
        InfrastructureError: the checkpoint cannot be read, or is not of the training with the fingerprint `of`, or its
            model is another one. No record was touched.
    """
    state = read_state(checkpoint)
    weights: dict[str, Tensor] = state["model"]
    shapes = {name: value.shape for name, value in like.state_dict().items()}
    if state.get("spec") != of or {name: value.shape for name, value in weights.items()} != shapes:
        raise InfrastructureError(
            "checkpoint-damaged",
            f"The checkpoint {checkpoint}, from which the committed run starts, belongs to another training. Restore "
            "the file from a copy, then resume the sweep.",
        )
    return weights
