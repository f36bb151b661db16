"""The unimodal sampler and pruner in your own `tune.Tuner`, over the smoothing radius R of DPLIS.

    python examples/ray_tune_unimodal.py [FOLDER]     # the ledger and Ray's files; without it, a temporary folder

The claim is that of `ray_tune_asha.py`, with a cap that pays for four whole trials.
"""

import sys
import tempfile
from pathlib import Path

from ray import tune

from tuner.ray_users.search import StudySearch
from tuner.ray_users.trainable import dp_trainable
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

folder = str(Path(sys.argv[1]).absolute()) if len(sys.argv) > 1 else tempfile.mkdtemp()
Path(folder).mkdir(parents=True, exist_ok=True)
trainable = dp_trainable(
    method="dplis", dataset="digits", ledger=f"sqlite:///{folder}/ledger.db", epsilon=3.0, delta=1e-5,
    batch_size=256, steps=40, reports=4, full_runs=4,
)  # fmt: skip
known = {"tolerance": 0.02, "last_step": 4}  # 4 reports; a difference of two points of accuracy does not matter
search = StudySearch(
    UnimodalSampler("smoothing_radius", **known), UnimodalPruner("smoothing_radius", **known), last_step=4
)
try:
    results = tune.Tuner(
        trainable,
        param_space={"smoothing_radius": tune.uniform(0, 3), "learning_rate": 2.0, "max_grad_norm": 1.0},
        tune_config=tune.TuneConfig(
            metric="validation_accuracy", mode="max", num_samples=6, reuse_actors=True, max_concurrent_trials=2,
            search_alg=search, scheduler=search.scheduler(),
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()  # fmt: skip
finally:  # a search that is left open counts with its whole epsilon, even if it took no step
    trainable.budget.close()
best = results.get_best_result()
print(f"best: trial with R = {best.config['smoothing_radius']:.2f}: {best.metrics['validation_accuracy']:.3f}")
print([trial.state.name.lower() for trial in search.study.trials], "epsilon", trainable.budget.view().epsilon_cap)
