"""Lets the tests of this folder import their files, wherever pytest is started."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
