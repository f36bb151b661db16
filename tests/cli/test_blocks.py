"""A growing table through the commands: blocks are charged, shown and exported; bad blocks are refused first."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_fakes import STEPS, Tune, write_images
from errors_helper import raises_code

from trainables import data
from trainables.data import DatasetRequest, load_records
from tuner.errors import InputError
from tuner.privacy.ledger.ledger import Ledger
from tuner.sweep.identity import names_in_ledger

OWN = {
    "dataset": {"name": "sales", "path": "sales.npz", "public_size": 500, "block": ["2026-11", "2026-10"]},
    "privacy__epsilon": 20.0,
}


@pytest.fixture
def sales(tune: Tune) -> Tune:
    """500 records, of which each month has about a third."""
    months = np.array(["2026-10", "2026-11", "2026-12"])[np.arange(500) % 3]
    write_images(tune.folder / "sales.npz", 500, block_train=months)
    return tune


def test_the_blocks_of_a_public_file_are_public(sales: Tune) -> None:
    """Otherwise a search could claim a guarantee for records that others use unprotected."""
    sales("budget", "public", "open", "sales.npz")
    assert sales.entries == ["public"] * 4
    for block in (["2026-10"], ["2026-11", "2026-10"]):
        values = {**OWN, "dataset": {**OWN["dataset"], "block": block}}  # type: ignore[dict-item]
        for each in block:
            sales("budget", "set", f"sales/{each}", "--epsilon", "30", "--delta", "1e-4")
        assert "[records-not-admitted]" in sales("run", sales.write(**values), "--local", code=3).err


def request_of(tune: Tune, *blocks: str) -> DatasetRequest:
    path = str(tune.folder / "sales.npz")
    return DatasetRequest(name="sales", path=path, public_size=500, validation_fraction=0.0, blocks=blocks)


def test_a_search_is_charged_to_its_blocks_and_says_so(sales: Tune) -> None:
    for block in ("2026-10", "2026-11"):
        sales("budget", "set", f"sales/{block}", "--epsilon", "30", "--delta", "1e-4")
    sales("run", sales.write(**OWN), "--local", "--quiet")
    shown = {each["dataset"]: each for each in sales("budget", "show", "sales", "--json").json["datasets"]}
    assert {name: each["committed"]["epsilon"] for name, each in shown.items()} == {
        "sales/2026-10": 20.0,
        "sales/2026-11": 20.0,
    }
    assert shown["sales/2026-10"]["searches"][0]["steps_spent"] > 0
    sales("export", "tiny")
    card = json.loads((sales.folder / "exports" / "tiny" / "privacy_card.json").read_text())
    assert [row["dataset"] for row in card["dataset_budget"]["blocks"]] == ["sales/2026-10", "sales/2026-11"]
    assert "The owner of the data vouches" in (sales.folder / "exports" / "tiny" / "privacy_card.md").read_text()
    sales("verify", "exports/tiny/privacy_card.json")
    sales("budget", "report", "sales/2026-11", "--out", "page.html")
    assert "charged to search tiny" in (sales.folder / "page.html").read_text()
    other = {**OWN, "name": "other", "dataset": {**OWN["dataset"], "block": "2026-11"}}  # type: ignore[dict-item]
    refused = sales("run", sales.write("other.yaml", **other), "--local", code=3)
    assert "[dataset-cap-exceeded]" in refused.err
    other["dataset"] = {**OWN["dataset"], "block": "2026-12"}  # type: ignore[dict-item]
    new = sales("run", sales.write("other.yaml", **other), "--local", code=3)
    assert "[records-not-admitted]" in new.err, "a block that the owner has not entered"
    sales("budget", "set", "sales/2026-12", "--epsilon", "30", "--delta", "1e-4")
    sales("run", sales.write("other.yaml", **other), "--local", "--quiet")
    assert STEPS
    with np.load(sales.folder / "sales.npz") as file:
        arrays = dict(file)
    (months,) = np.nonzero(arrays.pop("block_train") == "2026-10")
    kept = {name: array[months] if name.endswith("_train") else array for name, array in arrays.items()}
    np.savez(sales.folder / "copy.npz", **kept)
    for name, file in (("leak", "copy.npz"), ("leak", "sales.npz"), ("sales", "sales.npz")):
        assert "[records-known-private]" in sales("budget", "public", name, file, code=3).err
    assert "public" not in sales.entries
    whole = {key: value for key, value in OWN["dataset"].items() if key != "block"}  # type: ignore[attr-defined]
    refused = sales("run", sales.write("whole.yaml", name="whole", dataset=whole), "--local", code=3)
    assert "[records-not-admitted]" in refused.err
    refused = sales("budget", "set", "sales", "--epsilon", "30", "--delta", "1e-4", code=3)
    assert "[blocks-differ]" in refused.err


def test_one_record_does_not_decide_whether_a_search_on_an_empty_block_starts(tune: Tune) -> None:
    for records in (1, 0):
        months = np.array(["2026-11"] * records + ["2026-12"] * (20 - records))
        write_images(tune.folder / "sales.npz", 20, block_train=months)
        data._loaded.cache_clear()
        split = {"fraction": 0.3, "protected": True}  # a score of no record is noise
        block = {**OWN["dataset"], "block": "2026-11", "validation": split}  # type: ignore[dict-item]
        file = tune.write(**{**OWN, "dataset": block, "search__trials": 1})
        tune("plan", file, "--no-timing")
        tune("run", file, "--local", "--quiet")


def test_empty_blocks_are_not_the_same_records(tune: Tune) -> None:
    """Or the ledger would refuse the second one, and one record would decide it."""
    write_images(tune.folder / "sales.npz", 20, block_train=np.array(["2026-12"] * 20))
    one, other = (data.records_fingerprint(request_of(tune, block)) for block in ("2026-10", "2026-11"))
    assert one != other


def test_a_record_of_another_block_changes_nothing(sales: Tune) -> None:
    here = load_records(request_of(sales, "2026-10"))
    both = load_records(request_of(sales, "2026-10", "2026-11"))
    assert len(here.y_train) == 167
    assert len(both.y_train) == 334
    with np.load(sales.folder / "sales.npz") as file:
        arrays = dict(file)
    arrays["x_train"][arrays["block_train"] == "2026-12"] = 7
    np.savez(sales.folder / "sales.npz", **arrays)
    data._loaded.cache_clear()
    again = load_records(request_of(sales, "2026-10", "2026-11"))
    assert bool((again.x_train == both.x_train).all())


def test_a_copy_of_a_shipped_set_has_no_blocks(tune: Tune) -> None:
    shipped = load_records(DatasetRequest(name="digits", validation_fraction=0.0))
    arrays = {
        f"{axis}_{part}": getattr(shipped, f"{axis}_{part}").numpy() for axis in "xy" for part in ("train", "test")
    }
    np.savez(tune.folder / "sales.npz", **arrays, block_train=np.array(["2026-10"] * len(shipped.y_train)))
    with raises_code(InputError, "block-invalid"):
        names_in_ledger(request_of(tune, "2026-10"))
    assert names_in_ledger(request_of(tune)) == ("digits",)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dataset": {"name": "digits", "block": "a"}}, "block-invalid"),
        ({"dataset": {**OWN["dataset"], "block": []}}, "block-invalid"),  # type: ignore[dict-item]
        ({"dataset": {**OWN["dataset"], "block": "a/b"}}, "block-invalid"),  # type: ignore[dict-item]
        ({"dataset": {**OWN["dataset"], "block": 2026}}, "block-invalid"),  # type: ignore[dict-item]
        ({"dataset": {**OWN["dataset"], "name": "a/b"}}, "block-invalid"),  # type: ignore[dict-item]
        (
            {"dataset": {**OWN["dataset"], "public_users": 50}, "privacy__unit": "user"},  # type: ignore[dict-item]
            "block-of-users",
        ),
    ],
)
def test_bad_blocks_are_refused_before_anything_starts(sales: Tune, changes: dict[str, object], code: str) -> None:
    assert f"[{code}]" in sales("run", sales.write(**{**OWN, **changes}), "--local", code=2).err
    assert sales.entries == []


def test_a_file_without_blocks_is_refused(tune: Tune) -> None:
    write_images(tune.folder / "sales.npz", 500)
    assert "block_train" in tune("run", tune.write(**OWN), "--local", code=2).err
    assert tune.entries == []


def test_every_view_has_the_total_of_each_block(sales: Tune) -> None:
    """The second block of the table has no cap and a void total, and no view hides it behind the first one's cap."""
    file = sales.write(**{**OWN, "search__trials": 1})
    sales("budget", "set", "sales/2026-10", "--epsilon", "30", "--delta", "1e-4")
    sales("budget", "set", "sales/2026-11", "--epsilon", "25", "--delta", "1e-4")
    capped = sales("plan", file, "--no-timing", "--json").json
    assert "at most ε = 30, δ = 0.0001, which is the largest of the caps" in capped["claim"]
    assert [each["cap"]["epsilon"] for each in capped["datasets"]] == [30.0, 25.0]
    Ledger.open(sales.ledger_url).void_total("sales/2026-11", use="public", why="w", sweep="s")
    page = sales.folder / "page.html"
    views = {"plan": sales("plan", file, "--no-timing").text, "run": sales("run", file, "--local").text}
    sales("report", "tiny", "--out", str(page))
    views["report"] = page.read_text()
    sales("export", "tiny")
    views["card"] = (sales.folder / "exports" / "tiny" / "privacy_card.md").read_text()
    views["verify"] = sales("verify", "exports/tiny/privacy_card.json").text
    for name, view in views.items():
        assert "The TOTAL of sales/2026-11 is VOID" in " ".join(view.split()), name
    assert all(f"sales/2026-{month}: 1 search" in views["report"] for month in (10, 11))
    sales("budget", "report", "sales/2026-10", "--out", str(page))
    assert "also charged to sales/2026-11" in page.read_text()
