"""The paper's configurations: what they say, and that they run, on stand-ins of the data they want."""

import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from dsal.cli.main import app
from dsal.cli.shared_options import combine, read_options
from dsal.data import load_dataset
from dsal.data.sets.imagenet import SOLUTION
from dsal.errors import LeakError
from dsal.protocol.results import read_results

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = {  # d_B and C of the paper
    "cifar100-resnet18.toml": (8192, 0.6),
    "imagenet100.toml": (16384, 0.8),
    "imagenet.toml": (16384, 1.4),
}


def test_there_are_no_others() -> None:
    comparisons = {"table1-cpu.toml", "table1-paper.toml"}
    assert {path.name for path in CONFIGS.glob("*.toml")} == set(PAPER) | comparisons


@pytest.mark.parametrize("name", PAPER)
def test_they_hold_the_papers_values(name: str) -> None:
    experiment, _ = combine({}, read_options(CONFIGS / name))
    size, ratio = PAPER[name]
    paper = {"expansion": "random", "expansion_size": size, "gamma": 0.1, "compensation": ratio, "activation": "tanh"}
    assert (experiment.method, experiment.options) == ("ds-al", paper)
    assert experiment.seeds == (0, 1, 2)
    assert experiment.base_classes is None  # half of them
    experiment.build_method(0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four characters as colour images of different sizes, in the layouts of both ImageNets."""
    root, characters = tmp_path_factory.mktemp("data"), load_dataset("omniglot")
    table = ["ImageId,PredictionString"]
    for part, images in (("train", characters.train), ("val", characters.test)):
        for row in (images.labels < 24).nonzero().flatten().tolist():
            wnid = f"n{int(images.labels[row]):08d}"
            nested = root / "imagenet100" / part / wnid / f"{row}.JPEG"
            flat = root / "imagenet" / part / f"{row}.JPEG"
            full = flat if part == "val" else flat.parent / wnid / flat.name
            for path in (nested, full):
                path.parent.mkdir(parents=True, exist_ok=True)
            pixels = Image.fromarray(images.images[row, 0].numpy()).convert("RGB")
            pixels.resize((40 + row % 5, 48)).save(nested)
            shutil.copy(nested, full)
            table.append(f"{row},{wnid} 1 2 3 4")
    (root / "imagenet" / SOLUTION).write_text("\n".join(table))
    return root


@pytest.mark.parametrize("name", ["imagenet100.toml", "imagenet.toml"])
def test_they_run_on_a_stand_in(name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From image files to results, by the commands that stand in the configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSAL_CACHE", str(tmp_path / "cache"))
    stem, runner = name.removesuffix(".toml"), CliRunner()
    source = ["--dataset", stem, "--data-root", str(data)]
    short = ["--recipe", "paper", "--epochs", "1", "--size", "32"]
    made = ["--architecture", "resnet18", "--no-flip", "--out", f"{stem}-resnet18.safetensors"]
    trained = runner.invoke(app, ["pretrain", *source, *short, *made])
    assert trained.exit_code == 0, trained.output
    config = ["--config", str(CONFIGS / name), "--data-root", str(data), "--expansion-size", "32", "--no-report"]
    ran = runner.invoke(app, ["run", *config, "--out", "run"])
    assert ran.exit_code == 0, ran.output
    document = read_results(tmp_path / "run")
    assert [phase["classes_seen"] for phase in document["phases"]] == [12, 15, 18, 20, 22, 24]
    assert document["config"]["compensation"] == PAPER[name][1]
    assert document["provenance"]["backbone_trained_on"] == "base classes"
    refused = runner.invoke(app, ["run", *config, "--base-classes", "10"])
    assert isinstance(refused.exception, LeakError)
