"""The mapping of which every state holds its own version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.privacy.ledger.persistent import Persistent


@given(
    st.dictionaries(st.integers(0, 20), st.integers()),
    st.lists(st.tuples(st.integers(0, 20), st.integers()), max_size=60),
)
def test_every_version_is_the_dict_of_its_moment(first: dict[int, int], changes: list[tuple[int, int]]) -> None:
    versions, models = [Persistent(first)], [dict(first)]
    first.clear()  # it was copied
    for key, value in changes:
        versions.append(versions[-1].with_item(key, value))
        models.append({**models[-1], key: value})
    for version, model in zip(versions, models, strict=True):
        assert dict(version) == model == version
        assert list(version) == list(model)
        assert list(version.items()) == list(model.items())
        assert list(version.values()) == list(model.values())
        assert len(version) == len(model)
        assert repr(version) == repr(model)
        assert all((key in version) == (key in model) and version.get(key) == model.get(key) for key in range(21))


def test_a_change_copies_far_less_than_all() -> None:
    mapping: Persistent[int, int] = Persistent({key: key for key in range(10_000)})
    copies = 0
    for key in range(200):
        changed = mapping.with_item(key, 0)
        copies += changed._shared is not mapping._shared
        mapping = changed
    assert copies == 1  # √10000 changes fit beside the shared part
