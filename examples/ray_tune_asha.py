"""Your own `tune.Tuner` with Ray's ASHA, whose trials pay for their private steps. Any scheduler can be used.

    python examples/ray_tune_asha.py [FOLDER]     # the ledger and Ray's files; without it, a temporary folder

(3, 1e-5)-differential privacy of all trials together, on scikit-learn's digits. The cap pays for three whole trials.
"""

import sys
import tempfile
from pathlib import Path

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from tuner.ray_users.trainable import dp_trainable

folder = str(Path(sys.argv[1]).absolute()) if len(sys.argv) > 1 else tempfile.mkdtemp()
Path(folder).mkdir(parents=True, exist_ok=True)
trainable = dp_trainable(
    method="dp_sgd", dataset="digits", ledger=f"sqlite:///{folder}/ledger.db", epsilon=3.0, delta=1e-5,
    batch_size=256, steps=40, reports=4, full_runs=3,
)  # fmt: skip
try:
    results = tune.Tuner(
        trainable,
        param_space={"learning_rate": tune.loguniform(0.05, 5), "max_grad_norm": tune.loguniform(0.1, 10)},
        tune_config=tune.TuneConfig(
            metric="validation_accuracy", mode="max", num_samples=8, reuse_actors=True,
            scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2),
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()  # fmt: skip
finally:  # a search that is left open counts with its whole epsilon, even if it took no step
    trainable.budget.close()
spent, best = trainable.budget.view(), results.get_best_result()
print(f"best: trial with {best.config}: {best.metrics['validation_accuracy']:.3f}")
print(f"{spent.spent_steps} of {spent.step_cap} steps; epsilon {spent.epsilon_cap:.3g} is claimed for all trials")
print(f"{results.num_errors} trials did not fit; tune budget show --ledger {trainable.budget.ledger}")
