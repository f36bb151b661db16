"""Loading of libraries: no search for garbage meanwhile, and none of what they made."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.loading import loading


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage as Python does by default, also after a test that failed."""
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("collecting")
def test_no_garbage_is_searched_while_a_module_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large_library.py").write_text("import gc\ncollected = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    gc.unfreeze()
    with loading():
        import large_library  # type: ignore[import-not-found]
    assert not large_library.collected
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    del sys.modules["large_library"]


@pytest.mark.usefixtures("collecting")
def test_objects_of_a_call_that_loads_nothing_are_collected_as_before() -> None:
    gc.unfreeze()
    with loading():
        pass
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("collecting")
def test_an_error_and_a_process_that_collects_nothing_stay_as_they_are() -> None:
    with pytest.raises(ImportError), loading():
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()
