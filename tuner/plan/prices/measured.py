"""The stored file of measured searches: what each way to search lost against an oracle on public data sets."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.errors import TunerError

__all__ = ["ARMS", "MeasuredSearch", "Prices", "read_prices", "shipped_prices"]

Arm = Literal["prior", "gen", "commit", "full_runs", "composition", "selection", "proxy", "middle"]
ARMS: tuple[str, ...] = Arm.__args__  # type: ignore[attr-defined]  # of a Literal
"""Ways to search, by their names in the file. `prior` is no search: one run at the values of the shipped prior."""

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MeasuredSearch(_Strict):
    """One measured search, or the mean of equal ones.

    Attributes:
        arm: how it searched, one of `ARMS`.
        trials: number of trials; 1 without a search.
        axes: number of searched parameters, also for an arm that does not search.
        family: family of the model (`search_spaces.prior.FAMILIES`).
        train_size: public number of training records.
        dataset: name of the public data set. Rows of one data set are not independent.
        epsilon: total ε.
        price: accuracy of the oracle minus that of this search, in points.
    """

    arm: Arm
    trials: _Count
    axes: _Count
    family: Literal["linear", "convolutional", "recurrent", "attention", "other"]
    train_size: _Count
    dataset: Annotated[str, Field(min_length=1)]
    epsilon: _Positive
    price: Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]

    @property
    def situation(self) -> tuple[object, ...]:
        """What searches must have in common to be compared as a pair."""
        return self.dataset, self.family, self.train_size, self.epsilon, self.axes


class Prices(_Strict):
    """All measured searches, and where they come from."""

    provenance: dict[str, Any]
    searches: Annotated[tuple[MeasuredSearch, ...], Field(strict=False, min_length=1)]


def read_prices(text: str) -> Prices:
    """Return the measured searches of a file's text.

    Raises:
        TunerError: the text is no JSON, or a value is missing, unknown or malformed.
    """
    try:
        return Prices.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise TunerError(
            "prices-unreadable",
            f"The stored prices of search cannot be used: {where}: {first['msg']}. Install the program again.",
        ) from error


@lru_cache(maxsize=1)
def shipped_prices() -> Prices:
    """Return the measured searches that are shipped with the program."""
    return read_prices(files("tuner.plan.prices").joinpath("measured.json").read_text(encoding="utf-8"))
