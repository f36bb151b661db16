"""A trainable without torch, so that a worker starts at once."""

from __future__ import annotations

from ray.tune import Trainable


class Hill(Trainable):  # type: ignore[misc]
    """A public score with one top at x = 1, which four reports approach."""

    def setup(self, config: dict[str, float]) -> None:
        self._x, self._reports = config["x"], 0

    def step(self) -> dict[str, object]:
        self._reports += 1
        return {"score": (1 - (self._x - 1) ** 2) * self._reports / 4, "done": self._reports >= 4}

    def reset_config(self, new_config: dict[str, float]) -> bool:
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        """Ray saves a trial at its end."""
        return {"reports": self._reports}
