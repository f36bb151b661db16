"""A copy of a shipped data set under another name spends the budget of that data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from command_fakes import Tune

from trainables.data import DATASETS, loading


def test_a_copy_of_a_shipped_set_is_held_to_that_sets_cap(tune: Tune) -> None:
    arrays = loading.read_arrays(DATASETS["digits"], Path())
    order = np.random.default_rng(0).permutation(len(arrays["y_train"]))
    arrays |= {key: arrays[key][order] for key in ("x_train", "y_train")}
    np.savez("mine.npz", **arrays)
    tune("budget", "set", "digits", "--epsilon", "0.1", "--delta", "1e-5")
    file = tune.write("mine.yaml", dataset={"name": "mine", "path": "mine.npz", "public_size": 1401})
    for command in (("plan", file, "--no-timing"), ("run", file, "--local")):
        assert "[dataset-cap-exceeded]" in tune(*command, code=3).text
