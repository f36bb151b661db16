"""A driver that starts or restores a Tuner, and prints how its trials ended. It takes FOLDER fit|restore ours|rays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import optuna
from ray import tune
from ray_fakes import counted

from tuner.executors.base import ExecutorSettings
from tuner.executors.ray.session import ray_session
from tuner.ray_users.search import StudySearch
from tuner.ray_users.trainable import dp_trainable

folder, what, searcher = Path(sys.argv[1]), *sys.argv[2:]
with ray_session(ExecutorSettings(concurrent_trials=2)):
    private = dp_trainable(
        method="dp_sgd", dataset="digits", ledger=f"sqlite:///{folder}/ledger.db", epsilon=3.0, delta=1e-5,
        batch_size=128, steps=20, full_runs=5, search="mine",
    )  # fmt: skip
    (folder / "draws").mkdir(exist_ok=True)
    trainable = counted(private, folder / "draws", hangs_at=13)
    if what == "fit":
        search = StudySearch(optuna.samplers.RandomSampler(seed=1), last_step=4)
        asks = {"search_alg": search, "scheduler": search.scheduler()} if searcher == "ours" else {}
        tuner = tune.Tuner(
            trainable,
            param_space={"learning_rate": tune.loguniform(0.1, 5), "max_grad_norm": 1.0},
            tune_config=tune.TuneConfig(
                metric="validation_accuracy", mode="max", num_samples=4, max_concurrent_trials=2, reuse_actors=True,
                **asks,
            ),
            run_config=tune.RunConfig(
                name="run", storage_path=str(folder), verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            ),
        )  # fmt: skip
    else:
        tuner = tune.Tuner.restore(str(folder / "run"), trainable=trainable, resume_unfinished=True)
    results = tuner.fit()
    private.budget.close()
    # The searcher that the Tuner has read from its file, not the one above.
    ended = tuner._local_tuner._tune_config.search_alg
    print(
        json.dumps(
            {
                "errors": [str(result.error) for result in results if result.error is not None],
                "steps": [result.metrics["trial_step"] for result in results],
                "study": [trial.state.name for trial in ended.study.trials] if searcher == "ours" else None,
            }
        )
    )
