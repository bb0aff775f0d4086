"""Whether the tests notice a change of the mathematics: every mutant of a module, against the tests of that module.

    make mutants                         # all modules
    make mutants MODULES="analytic/head analytic/ridge"  # some

Each mutant is tested in a process of its own, forked from one that has imported what takes long, up to the first test
that fails. Tests that noticed many mutants before run first, then the short ones. A mutant that no test notices is a
survivor: write a test, or, if no test could tell it from the original, name it in ``equivalent.toml`` and say why.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.util
import math
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from .operators import Mutant, mutants

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
TRAINED = ("pass", "il2a", "ssre", "given", "loss_of_a", "without_di", "without_re", "of_every", "boosted_n", "old_net")
"""Parts of the names of tests that train a network, which takes seconds."""
_MERGED = ("-k", "merge or everything or twice or another_backbone")
TARGETS: dict[str, tuple[str, ...]] = {
    "protocol/metrics": ("tests/protocol/test_metrics.py",),
    "image_model/novelty": ("tests/image_model/test_novelty.py",),
    "image_model/novelty_reference": ("tests/image_model/test_novelty.py",),
    "analytic/head": ("tests/analytic/test_best_columns.py",),
    "classifier/calibration": ("tests/classifier/test_calibration.py",),
    "analytic/combine": ("tests/analytic/test_learner.py", "-k", "equations"),
    "analytic/streams": ("tests/analytic/test_learner.py", "-k", "not batch_size"),
    "analytic/tuning": (
        "tests/analytic/test_tuning.py",
        "tests/analytic/test_auto.py",
        "tests/methods/test_analytic.py",
    ),
    "analytic/ridge": ("tests/analytic/test_ridge.py", "-k", "not five_hundred and not real_features"),
    "analytic/leave_one_out": ("tests/analytic/test_learner.py", "tests/analytic/test_auto.py"),
    "analytic/learner": (
        "tests/analytic/test_learner.py",
        "tests/analytic/test_auto.py",
        "tests/classifier/test_classifier.py",
        "tests/classifier/test_forgetting.py",
    ),
    "image_model/seen": ("tests/image_model/test_merging.py", "-k", "record or lesson"),
    "image_model/outcomes": ("tests/image_model/test_merging.py", "-k", "counts_of_answers"),
    "image_model/learned_state": ("tests/image_model/test_merging.py", *_MERGED),
    "image_model/model": ("tests/image_model/test_merging.py", "tests/image_model/test_model.py", *_MERGED),
    "classifier/estimator": ("tests/classifier/test_classifier.py", "tests/classifier/test_operators.py"),
    "files/atomic": ("tests/files/test_atomic.py", "tests/files/test_tensors.py", "-k", "not killed"),
    "files/lock": ("tests/files/test_lock.py",),
    "methods/network/kit/losses": (
        *(f"tests/methods/test_{name}.py" for name in ("network_losses", "podnet", "prototypes", "foster", "eeil")),
        *("-k", " and ".join(f"not {name}" for name in TRAINED)),
    ),
    "methods/network/kit/exemplars": ("tests/methods/test_network_losses.py",),
    "methods/network/lucir": ("tests/methods/test_lucir.py",),
    "methods/network/podnet": ("tests/methods/test_podnet.py", "tests/methods/test_lucir.py"),
    "methods/network/bic": ("tests/methods/test_bic.py",),
}
"""Modules under ``src/dsal``, and arguments for pytest: the tests that must notice, without those that take long."""
LEARNER = (
    "learn_streams",
    "unlearn",
    "unmerge",
    "drop_compensation",
    "merge",
    "select",
    "strength",
    "head",
    "logits",
    "outputs",
    "_main_blocks",
)
PARTS = {
    "analytic/head": ("module | _", "logits ", "best_columns ", "Margins.", "_best ", "_check_width "),
    "analytic/streams": ("Compensation ", "one_hot ", "residue ", "cleansed "),
    "analytic/learner": tuple(f"Learner.{name} " for name in (*LEARNER, "residue_blocks")),
    "image_model/learned_state": ("LearnedState.merge ",),
    "image_model/model": ("ImageModel.merge ",),
    "classifier/estimator": ("DSALClassifier.merge ", "DSALClassifier._extended "),
    "methods/network/kit/exemplars": ("herd ", "LearnedImages.", "Exemplars."),
    "methods/network/lucir": ("lucir_loss ", "Imprint.begin "),
    "methods/network/podnet": ("podnet_loss ", "ImprintProxies.begin ", "_centres "),
    "methods/network/bic": ("bic_loss ", "learn_correction_ "),
    "files/atomic": ("atomic_write ", "flush_to_disk "),
    "files/lock": ("model_lock ", "_acquire ", "_same_file ", "_lock "),
}
"""Where only a part of a module must be right to the last detail: how the places of that part begin."""


PATIENCE = 900
"""Seconds after which tests that wait for something that never comes are given up."""


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import one module from a source of its own."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != self.name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self.path))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.path)
        exec(compile(self.source, str(self.path), "exec"), module.__dict__)


class Order:
    """The order of the tests, and what came of them: a plug-in of pytest in the child, read by the parent."""

    def __init__(self, target: str) -> None:
        self.log = Path(tempfile.gettempdir()) / f"mutants-{os.getpid()}-{Path(target).name}"
        self.noticed, self.seconds = Counter[str](), defaultdict[str, float](float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: (-self.noticed[item.nodeid], self.seconds[item.nodeid]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{report.nodeid}\t{report.duration}\t{int(report.failed)}\n")

    def remember(self, used: float) -> None:
        """Count what the child's tests noticed; keep how long each took, and the processor time of all."""
        self.used = used
        if self.log.exists():
            for line in self.log.read_text(encoding="utf-8").splitlines():
                test, seconds, failed = line.rsplit("\t", 2)
                self.noticed[test] += int(failed)
                self.seconds[test] = max(self.seconds[test], float(seconds))
            self.log.unlink()


def is_noticed(target: str, source: str, tests: Sequence[str], order: Order, limit: float = math.inf) -> bool:
    """Whether the tests fail with another source in place of a module, or compute for more than ``limit`` seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        if limit < math.inf:  # processor time: how busy the machine is must not decide
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
        path = ROOT / "src" / "dsal" / f"{target}.py"
        sys.meta_path.insert(0, Instead(f"dsal.{target.replace('/', '.')}", path, source))
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[order])))
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            order.remember(used.ru_utime + used.ru_stime)
            return status != 0
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def survivors(target: str, tests: Sequence[str], known: set[str]) -> list[Mutant]:
    """The mutants of a module that no test notices and that are not known to be equivalent."""
    source = (ROOT / "src" / "dsal" / f"{target}.py").read_text(encoding="utf-8")
    began, order = time.monotonic(), Order(target)
    if is_noticed(target, source, tests, order):
        sys.exit(f"{target}: its tests fail without any change")
    limit = 3 * order.used + 10
    left = []
    every = [mutant for mutant in mutants(source) if mutant.place.startswith(PARTS.get(target, ""))]
    for mutant in every:
        if mutant.key not in known and not is_noticed(target, mutant.source, tests, order, limit):
            left.append(mutant)
            print(f"  {target}.py:{mutant.line}  {mutant.change}", flush=True)
    named = sum(mutant.key in known for mutant in every)
    seconds = time.monotonic() - began
    print(f"{target}: {len(every)} mutants, {named} equivalent, {len(left)} survived, {seconds:.0f} s", flush=True)
    stale = known - {mutant.key for mutant in every}
    if stale:
        sys.exit(f"equivalent.toml names mutants of {target} that do not exist: {stale}")
    return left


def equivalents() -> dict[str, dict[str, str]]:
    """Mutants that no test can tell from the original: by module, the key of each and the reason."""
    return tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8"))


def _import_once() -> None:
    """Import all that the tests use, and forget dsal: every child imports its own."""
    import hypothesis  # noqa: F401

    for name in ("dsal", "dsal.classifier", "dsal.protocol", "dsal.image_model"):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "dsal"]:
        del sys.modules[name]
    gc.freeze()


def main(names: Sequence[str]) -> None:
    os.chdir(ROOT)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    _import_once()
    known, left = equivalents(), []
    for target, tests in TARGETS.items():
        if not names or target in names or Path(target).name in names:
            left += survivors(target, tests, set(known.get(target, {})))
    sys.exit(bool(left))


if __name__ == "__main__":
    main(sys.argv[1:])
