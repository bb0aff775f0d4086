"""A phase larger than memory streams through: the peak does not depend on the number of rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAK = """
import sys
import numpy as np
from dsal import DSALClassifier
from dsal.protocol.provenance import peak_memory_bytes

class Batches:
    def __init__(self, count): self.count = count
    def __iter__(self):
        for seed in range(self.count):
            random = np.random.RandomState(seed)
            yield random.standard_normal((2000, 64)), random.randint(0, 5, 2000)

model = DSALClassifier(expansion_size=64)
model.partial_fit(Batches(20))
before = peak_memory_bytes()
model.partial_fit(Batches(int(sys.argv[1])))
print(peak_memory_bytes() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nobody tells the peak")
def test_peak_memory_does_not_depend_on_the_number_of_rows() -> None:
    """Blocks are full after 20 batches. Were rows kept, 80 batches more would take 82 MB."""
    done = subprocess.run([sys.executable, "-c", PEAK, "100"], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 41e6
