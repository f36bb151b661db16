"""Passwords in addresses are recognised in every form, and hidden in every text."""

from __future__ import annotations

import pytest

from tuner.passwords import has_password, hide_password

WITH = [
    "http://me:secret@host:5000",
    "https://secret@host/mlflow",  # a token in the place of the user
    "postgresql://me:secret@host/db",
    "postgresql+psycopg://me:sec@ret:secret@host/db",
    "postgresql://me:secret/secret@host/db",
    "mysql://:secret@host/db",
    "postgresql://me@host/db?password=secret&sslmode=require",
    "postgresql://me@host/db?sslpassword=secret",
    "http://host:5000/?access_token=secret",
    "me:secret@host/db",
    "me:sec@secret@host/db",
    "me:sec/secret@[::1]/db",
    "postgresql:/me:secret@host/db",
]
WITHOUT = [
    "http://host:5000",
    "http://host:5000/a/b?page=2",
    "postgresql://me@host/db?sslmode=require",
    "sqlite:////home/me@home/mlflow.db",
    "sqlite:///runs/mlflow.db",
    "sqlite:////data/run:1@home/mlflow.db",
]


@pytest.mark.parametrize("url", WITH)
def test_a_password_is_found_and_hidden(url: str) -> None:
    assert has_password(url)
    for text in (url, f"cannot connect to '{url}' (and {url})", f'{{"a": "http://host:1/x", "uri": "{url}"}}'):
        assert "secret" not in hide_password(text)
        assert "***" in hide_password(text)


@pytest.mark.parametrize("url", WITHOUT)
def test_an_address_without_one_stays_as_it_is(url: str) -> None:
    assert not has_password(url)
    assert hide_password(f"see {url} for more") == f"see {url} for more"
