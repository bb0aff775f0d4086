"""The whole way: trainings, numbers, figures, pages; stopped and called again."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.protocol.same import comparable

from dsal.data.features.feature_set import FeatureSet
from dsal.data.sets.cifar import CIFAR100
from dsal.errors import InputError, UnknownNameError
from dsal.protocol.results import read_results
from dsal.protocol.runs import run_experiment
from dsal.reproduction.item import shown
from dsal.reproduction.plan import Plan, TrainingSpec, quick
from dsal.reproduction.reproduction import chosen_items, reproduce, write_documents
from dsal.reproduction.training_archive import TrainingArchive


def test_one_training_serves_all_who_need_it(plan: Plan, tmp_path: Path) -> None:
    needs = [need for item in chosen_items(["all"]) for need in item.needs(plan)]
    jobs = TrainingArchive(plan, tmp_path).jobs(needs)
    trained = [need for job in jobs for need in job.needs]
    assert len(trained) == len(set(trained)) < len(needs)
    assert set(trained) == set(needs)


def test_table_1_leaves_runs_as_the_run_command_does(plan: Plan, reproduction: Path, tmp_path: Path) -> None:
    for method in ("ds-al", "acil"):
        setting = TrainingArchive(plan, tmp_path).setting(TrainingSpec(plan.dataset, 5, 0), method, plan.seeds)
        list(run_experiment(setting, tmp_path / method))
        ours, theirs = (
            comparable(read_results(folder)) for folder in (reproduction / "runs" / f"{method}-k5", tmp_path / method)
        )
        for document in (ours, theirs):
            del document["stored_bytes"]
        assert ours == theirs


def test_every_number_of_table_1_in_the_document_is_in_its_file(reproduction: Path) -> None:
    text = (reproduction / "reproduction.md").read_text(encoding="utf-8")
    for method, title in (("ds-al", "DS-AL"), ("acil", "ACIL")):
        for phases in (5, 25):
            document = read_results(reproduction / "runs" / f"{method}-k{phases}")
            row = next(line for line in text.splitlines() if line.startswith(f"| {title}, K = {phases} |"))
            cells = row.split(" | ")
            assert cells[1] == shown(document["average_accuracy"])
            assert cells[4] == shown(document["last_accuracy"])
    assert "| ACIL, K = 5 | " in text
    assert "66.30" in text  # the paper's


def test_the_main_stream_is_the_same_for_every_number_of_phases(reproduction: Path) -> None:
    (entry,) = json.loads((reproduction / "fig6.json").read_text())["summary"]["sets"].values()
    assert len({point["acil_correct"] for point in entry["points"]}) == 1
    assert entry["flips"] == []
    assert "no prediction differs" in (reproduction / "reproduction.md").read_text(encoding="utf-8")


def test_figures_and_page_are_there(reproduction: Path) -> None:
    names = {path.name for path in (reproduction / "figures").iterdir()}
    assert {"fig4.png", "fig4.pdf", "fig5.png", "fig6-cifar100-sample.png"} <= names
    page = (reproduction / "reproduction.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 3
    assert "Left out" in page  # Fig. 3, without images


def test_what_is_there_is_not_done_again(plan: Plan, reproduction: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(reproduction, out)
    lost = out / "trainings" / "cifar100-sample-k25-seed1" / "tanh.safetensors"
    lost.unlink()
    before = {path: path.stat().st_mtime_ns for path in (out / "trainings").glob("*/*.safetensors")}
    steps = list(reproduce(["table1"], plan, out))
    assert steps[0].note == "cifar100-sample, K = 25, seed 1: tanh"
    assert steps[-1].total == 1
    touched = {path for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert touched == {lost.with_name("main.safetensors")}
    name = Path("runs", "ds-al-k25", "confusion.npz")
    assert (out / name).read_bytes() == (reproduction / name).read_bytes()


def test_another_choice_is_not_mixed_in(plan: Plan, reproduction: Path, sample_file: Path) -> None:
    other = quick(dataset=str(sample_file), characters=None, expansion_size=65)
    with pytest.raises(InputError, match=r"expansion_size \(64 there, 65 here\)"):
        next(reproduce(["fig4"], other, reproduction))


def test_mistakes_are_named(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="table1"):
        next(reproduce(["tabel1"], plan, tmp_path))
    with pytest.raises(InputError, match="holds no reproduction"):
        write_documents(tmp_path)


def test_fig_3_shows_images_of_both_kinds(plan: Plan, reproduction: Path, sample: FeatureSet, tmp_path: Path) -> None:
    folder, out = tmp_path / CIFAR100.folder, tmp_path / "copy"
    folder.mkdir()
    shutil.copytree(reproduction, out)
    pixels = np.random.default_rng(0).integers(0, 256, (len(sample.test_y), 3072), dtype=np.uint8)
    part = {"data": pixels, CIFAR100.labels_key: sample.test_y.tolist()}
    for name, content in (("train", part), ("test", part), ("meta", {CIFAR100.names_key: list(sample.class_names)})):
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    with_images = quick(
        dataset=plan.dataset, characters=None, expansion_size=64, activations=plan.activations, data_root=str(tmp_path)
    )
    list(reproduce(["fig3"], with_images, out))
    summary = json.loads((out / "fig3.json").read_text())["summary"]
    assert {image["kind"] for image in summary["images"]} == {"corrected", "worsened"}
    for image in summary["images"]:
        top = {title: image[title][0][0] for title in ("before", "after")}
        assert (top["after"] == image["class"]) == (image["kind"] == "corrected")
        assert (top["before"] == image["class"]) == (image["kind"] == "worsened")
        stored = pixels[image["row"]].reshape(3, 32, 32).transpose(1, 2, 0)
        assert (np.array(image["pixels"]) == stored).all()
    write_documents(out)
    assert "figures/fig3.png" in (out / "reproduction.md").read_text(encoding="utf-8")


def test_the_committed_document_is_made_from_the_committed_files(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    shutil.copytree(docs / "reproduction", tmp_path, dirs_exist_ok=True)
    shutil.copytree(docs / "figures", tmp_path / "figures")
    markdown, _ = write_documents(tmp_path)
    assert (docs / "reproduction.md").read_text(encoding="utf-8").startswith(markdown.read_text(encoding="utf-8"))
