"""The memory of large tensors is used again in the next step."""

import subprocess
import sys

CODE = """
import resource, sys
import torch
from trainables.memory import keep_freed_memory

if sys.argv[1] == "kept" and not keep_freed_memory():
    print("no glibc")
    sys.exit()
for turn in range(24):
    if turn == 16:  # the heap has grown by then
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**23).add_(1)  # 32 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> str:
    return subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True).stdout.strip()


def test_large_tensors_reuse_freed_memory() -> None:
    kept = faults("kept")
    if kept != "no glibc":
        assert int(kept) < 2**13  # less than one of the eight tensors was mapped page by page
        assert int(faults("default")) > 4 * 2**13
