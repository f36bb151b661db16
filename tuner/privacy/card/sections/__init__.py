"""Sections of a privacy card in the order of its page. To add a section, list its `CardSection` in `SECTIONS`."""

from __future__ import annotations

from tuner.privacy.card.sections.assumptions import ASSUMPTIONS, NOT_PROVED
from tuner.privacy.card.sections.caps import SPENT, TRAINING_CAP, VALIDATION_CAP
from tuner.privacy.card.sections.claim import CLAIM
from tuner.privacy.card.sections.exported import CONFIGURATION, EXPORTED_FILES, SCHEMA, VERSIONS, WINNER
from tuner.privacy.card.sections.exposure import DATA_ACCESSES, KEPT, PUBLIC_SEARCH, RELEASED, SETTING
from tuner.privacy.card.sections.ledger import DATASET_BUDGET, LEDGER
from tuner.privacy.card.sections.records import RANDOMNESS, RECORDS, SCORES, VALIDATION
from tuner.privacy.card.sections.release import RELEASED_RECORDS
from tuner.privacy.card.sections.section import CardSection

__all__ = ["SECTIONS"]

SECTIONS: tuple[CardSection, ...] = (
    CLAIM,
    SETTING,
    RELEASED,
    KEPT,
    DATA_ACCESSES,
    TRAINING_CAP,
    VALIDATION_CAP,
    RELEASED_RECORDS,
    PUBLIC_SEARCH,
    VALIDATION,
    SCORES,
    EXPORTED_FILES,
    SPENT,
    WINNER,
    DATASET_BUDGET,
    CONFIGURATION,
    RECORDS,
    RANDOMNESS,
    ASSUMPTIONS,
    NOT_PROVED,
    LEDGER,
    VERSIONS,
    SCHEMA,
)
