"""Private training of the next word on the State of the Union addresses, from random weights and from public ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainables.charge import NoCharge
from trainables.data import DatasetRequest, public_train_size
from trainables.start import StartWeights
from trainables.training import PrivateTraining, TrainingSpec
from tuner.privacy.accountant.pld import calibrate_noise

FROZEN: Mapping[str, tuple[str, ...]] = {"next_word_lstm": ("1",), "next_word_mlp": ("1", "3")}
"""Layers that keep the public weights: the vectors of words and, of the perceptron, its first and largest layer."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One unit of privacy. All runs of an arm, one for each rate, are (ε, δ)-private together.

    Attributes:
        batch_size: expected number of units in a batch.
        steps: steps of a run.
        records_per_user: most records of a speaker; used only if the unit is a user.
    """

    unit: str
    epsilon: float
    delta: float
    batch_size: int
    steps: int
    records_per_user: int = 16

    def request(self, data_dir: str | None) -> DatasetRequest:
        """Return the request for the records."""
        return DatasetRequest(
            name="state_union", data_dir=data_dir, unit=self.unit, records_per_user=self.records_per_user
        )


RECORDS = Setting(unit="record", epsilon=8.0, delta=1e-5, batch_size=1024, steps=80)
SPEAKERS = Setting(unit="user", epsilon=8.0, delta=0.05, batch_size=4, steps=20, records_per_user=256)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One arm: a unit, a model, a start or None, and the learning rates that are tried."""

    setting: Setting
    model: str
    start: StartWeights | None
    rates: tuple[float, ...]
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """Perplexities of validation records before and after training, and of test records once, at the best rate."""

    before: float
    by_rate: Mapping[float, float]
    rate: float
    after: float
    test_before: float
    test: float
    noise_multiplier: float


def measure(run: Run, *, data_dir: str | None) -> Outcome:
    """Train once for each rate. The rate is chosen by validation records, which are outside the guarantee.

    The noise is seeded, so the numbers can be repeated: the addresses are public, and nothing is released.
    """
    setting = run.setting
    request = setting.request(data_dir)
    rate = setting.batch_size / public_train_size(request)
    noise = calibrate_noise(
        sample_rate=rate, steps=len(run.rates) * setting.steps, epsilon=setting.epsilon, delta=setting.delta
    )
    found: dict[float, tuple[float, PrivateTraining]] = {}
    before = test_before = 0.0
    for place, learning_rate in enumerate(run.rates):
        training = PrivateTraining(
            TrainingSpec(
                method="dp_sgd",
                model=run.model,
                dataset=request,
                batch_size=setting.batch_size,
                steps=setting.steps,
                noise_multiplier=noise,
                sample_rate=rate,
                parameters={"learning_rate": learning_rate, "clipping": "automatic"},
                seed=run.seed,
                private=False,
                noise_seed=1000 * run.seed + place,
                threads=1,
                metric="validation_perplexity",
                start=run.start,
                freeze=FROZEN[run.model] if run.start is not None else (),
            ),
            NoCharge(),
        )
        if not place:
            before = training.evaluate()["validation_perplexity"]
            test_before = training.evaluate("test")["test_perplexity"]
        training.run_to(setting.steps)
        found[learning_rate] = training.evaluate()["validation_perplexity"], training
    best = min(found, key=lambda each: found[each][0])
    return Outcome(
        before=before,
        by_rate={each: score for each, (score, _) in found.items()},
        rate=best,
        after=found[best][0],
        test_before=test_before,
        test=found[best][1].evaluate("test")["test_perplexity"],
        noise_multiplier=noise,
    )
