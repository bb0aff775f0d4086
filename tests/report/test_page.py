"""The page as a document: complete in itself, safe, well formed, small."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsal.errors import FileFormatError, InputError
from dsal.report.page import build_report
from dsal.report.run_pages import read_runs

VOID = {"meta", "input", "br", "hr", "link"}
EVIL = "</script><script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1>&amp; $\\frac{$"


class Page(HTMLParser):
    """Tags with attributes, all text, text of scripts and styles; refuses tags that do not close in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.raw[self.open[-1]] if self.open and self.open[-1] in self.raw else self.text).append(data)

    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.raw["script"][0]))


def changed(run: Path, out: Path, **changes: Any) -> Path:
    """A copy of a run with top-level entries of its results replaced."""
    out.mkdir(parents=True)
    document = json.loads((run / "results.json").read_text())
    (out / "results.json").write_text(json.dumps({**document, **changes}))
    (out / "confusion.npz").write_bytes((run / "confusion.npz").read_bytes())
    return out


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report)


def test_loads_nothing(page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes), "event handlers belong to the script"
        if "href" in attributes:
            assert str(attributes["href"]).startswith("#")
    css, script = "".join(page.raw["style"]), page.raw["script"][1]
    assert not re.search(r"url\(|@import|https?:", css)
    assert set(re.findall(r"https?://[^\"']+", script)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|innerHTML|outerHTML|insertAdjacentHTML|eval\(", script)


def test_structure(page: Page) -> None:
    identifiers = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert max(identifiers.values()) == 1
    for name in ("href", "for", "aria-labelledby", "aria-describedby"):
        for _, attributes in page.tags:
            if name in attributes:
                assert str(attributes[name]).removeprefix("#") in identifiers
    counts = Counter(tag for tag, _ in page.tags)
    assert counts["h1"] == counts["main"] == counts["title"] == 1
    assert counts["section"] == counts["h2"] == 8
    for tag, attributes in page.tags:
        if attributes.get("role") == "img":
            assert attributes.get("aria-label") or tag == "canvas"  # the script names the canvas
        if tag == "svg" and attributes.get("role") != "img":
            assert attributes["aria-hidden"] == "true"


def test_every_number_is_there(page: Page, runs: dict[str, Path]) -> None:
    text = " ".join(page.text)
    for run in read_runs(list(runs.values())):
        for value in (run.average, run.last, run.base, run.forgetting):
            assert value is not None
            assert f"{value.mean:.2f}" in text
        for phase in run.phases:
            assert f"{phase.accuracy.mean:.2f}" in text
        assert run.provenance["data_sha256"] in text
    for printed in ("66.20", "58.32", "65.95", "57.65", "66.39", "58.26"):  # the paper's
        assert printed in text


def test_curves_and_counts_reach_the_script(page: Page, runs: dict[str, Path]) -> None:
    data = page.data()
    run = read_runs([runs["ds-al"]])[0]
    line = data["charts"]["accuracy"]["panels"][0][0]
    assert [point[:2] for point in line["points"]] == [[phase.classes_seen, phase.number] for phase in run.phases]
    assert [point[2] for point in line["points"]] == [round(phase.accuracy.mean, 4) for phase in run.phases]
    assert all(point[3] is not None for point in line["points"])
    assert [point[3] for point in data["charts"]["accuracy"]["panels"][0][2]["points"]] == [None] * 6  # one seed
    assert data["matrices"]["0"]["seen"][-1] == 100
    assert data["names"] == [list(run.class_names)]


def test_differences_between_runs_are_marked(page: Page) -> None:
    marked = sum(1 for tag, attributes in page.tags if tag == "tr" and attributes.get("class") == "diff")
    assert marked >= 3  # method, phases, seeds
    assert "≠" in "".join(page.text)


def test_one_run(runs: dict[str, Path], tmp_path: Path) -> None:
    page = Page(build_report([runs["k5"]], tmp_path))
    assert "DS-AL, K = 5" in page.text
    assert "± 0.00" not in "".join(page.text)  # one seed has no deviation, though the file says 0


def test_text_from_files_stays_text(runs: dict[str, Path], tmp_path: Path) -> None:
    document = json.loads((runs["k5"] / "results.json").read_text())
    run = changed(
        runs["k5"],
        tmp_path / "run",
        method=EVIL,
        seed_varies=EVIL,
        class_names=[EVIL, *document["class_names"][1:]],
        config={**document["config"], EVIL: [EVIL, {"a": EVIL}], "dataset": EVIL},
        provenance={**document["provenance"], "cpu": EVIL, "image_dataset": EVIL, "backbone_trained_on": EVIL},
    )
    page = Page(build_report([run, runs["ds-al"]], tmp_path / "out"))
    assert Counter(tag for tag, _ in page.tags)["script"] == 2
    assert "img" not in {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.data()["names"][0][0] == EVIL
    assert any(EVIL in text for text in page.text)
    assert {path.parent for path in (tmp_path / "out").rglob("*.p*")} == {tmp_path / "out" / "figures"}


def test_one_phase_and_no_later_classes(runs: dict[str, Path], tmp_path: Path) -> None:
    document = json.loads((runs["k5"] / "results.json").read_text())
    run = changed(
        runs["k5"],
        tmp_path / "run",
        phases=document["phases"][:1],
        new_accuracy=None,
        forgetting=None,
        backward_transfer=None,
    )
    page = Page(build_report([run], tmp_path / "out"))
    assert "DS-AL, K = 0" in page.text


def test_a_run_without_confusion_counts(runs: dict[str, Path], tmp_path: Path) -> None:
    run = changed(runs["k5"], tmp_path / "run")
    (run / "confusion.npz").unlink()
    page = Page(build_report([run], tmp_path / "out"))
    assert page.data()["matrices"] == {}
    assert not (tmp_path / "out/figures/confusion.png").exists()
    assert "canvas" not in {tag for tag, _ in page.tags}


def test_omniglot_stays_small(omniglot_run: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    path = build_report([omniglot_run, runs["k5"]], tmp_path)
    assert path.stat().st_size < 500_000
    data = Page(path).data()
    assert data["matrices"]["0"]["group"] == 13
    assert len(data["names"][data["matrices"]["0"]["names"]]) == 1623
    assert set(data["charts"]) >= {"accuracy-omniglot", "accuracy-cifar100"}
    assert "generic pretrained" in path.read_text()


def test_what_is_no_run_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one"):
        build_report([], tmp_path / "out")
    with pytest.raises(InputError, match=r"no results\.json"):
        build_report([tmp_path], tmp_path / "out")
    for number, changes in enumerate(
        ({"schema": 2}, {"phases": []}, {"class_names": ["one"]}, {"average_accuracy": 3})
    ):
        with pytest.raises(FileFormatError):
            build_report([changed(runs["k5"], tmp_path / str(number), **changes)], tmp_path / "out")
    torn = changed(runs["k5"], tmp_path / "torn")
    (torn / "confusion.npz").write_bytes((torn / "confusion.npz").read_bytes()[:-200])
    with pytest.raises(FileFormatError, match=r"confusion\.npz"):
        build_report([torn], tmp_path / "out")
    foreign = changed(runs["k5"], tmp_path / "foreign")
    for strange in (np.zeros((3, 3), np.int32), np.zeros((1, 1), np.int32), np.zeros((50, 50))):
        np.savez(foreign / "confusion.npz", **{f"seed0_phase{k}": strange for k in range(6)})
        with pytest.raises(FileFormatError, match=r"confusion\.npz"):
            build_report([foreign], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("method",), "x" * 10**6),
        (("method",), ["ds-al"]),
        (("method",), "\ud800"),
        (("class_names", 3), "\udfff"),
        (("class_names", 3), ["a", "b"]),
        (("class_names",), "class"),
        (("phases", 2, "classes_seen"), -1),
        (("phases", 5, "classes_seen"), 10**6),
        (("phases", 1, "phase"), 0),
        (("phases", 0, "accuracy", "mean"), float("nan")),
        (("phases", 0, "seconds", "mean"), float("inf")),
        (("average_accuracy", "mean"), 1e300),
        (("seeds",), []),
        (("seeds",), [0.5]),
        (("provenance", "backbone_trained_on"), ["base classes"]),
        (("provenance", "backbone"), "resnet32"),
        (("config",), []),
        (("stored_bytes",), -1),
    ],
)
def test_results_that_lie_are_refused_by_part(
    runs: dict[str, Path], tmp_path: Path, place: tuple[str | int, ...], value: object
) -> None:
    document = json.loads((runs["k5"] / "results.json").read_text())
    part: Any = document
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    with pytest.raises(FileFormatError, match=r"results\.json .*" + str(place[0])) as caught:
        read_runs([changed(runs["k5"], tmp_path / "run", **document)])
    assert len(str(caught.value)) < 600


def test_counts_that_lie_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    run = changed(runs["k5"], tmp_path / "run")
    path, whole = run / "confusion.npz", (run / "confusion.npz").read_bytes()
    start = whole.index(b"seed0_phase5.npy") + 60
    path.write_bytes(whole[:start] + bytes(40) + whole[start + 40 :])  # the deflated data
    with pytest.raises(FileFormatError, match=r"confusion\.npz"):
        build_report([run], tmp_path / "out")
    with np.load(runs["k5"] / "confusion.npz") as file:
        arrays = dict(file)
    for wrong in (-arrays["seed0_phase5"], arrays["seed0_phase5"][None], arrays["seed0_phase5"] * 1.0):
        np.savez_compressed(path, **{**arrays, "seed0_phase5": wrong})
        with pytest.raises(FileFormatError, match=r"confusion\.npz.*seed0_phase5"):
            build_report([run], tmp_path / "out")


def test_labels_are_unique(runs: dict[str, Path]) -> None:
    twice = read_runs([runs["k5"], runs["k5"], runs["ds-al"]])
    assert [run.label for run in twice] == ["DS-AL, K = 5, third", "DS-AL, K = 5, third (2)", "DS-AL, K = 25"]


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def _contrast(one: str, two: str) -> float:
    bright, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_in_light_and_dark(page: Page) -> None:
    css = "".join(page.raw["style"])
    themes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root {(.*?)}", css, re.S)
    ]
    assert len(themes) == 2
    palettes = [re.findall(r"\.c\d{--c:(#[0-9a-f]{6})}", half) for half in css.split("@media", 2)[:2]]
    for theme, palette in zip(themes, palettes, strict=True):
        assert len(palette) == 8
        for text in ("ink", "soft", "accent"):
            assert _contrast(theme[text], theme["page"]) >= 4.5
            assert _contrast(theme[text], theme["raised"]) >= 4.5
        assert _contrast(theme["ink"], theme["mark"]) >= 4.5
        assert min(_contrast(color, theme["page"]) for color in palette) >= 4.5


def test_epochs_of_the_base_training_are_a_folded_table(runs: dict[str, Path], tmp_path: Path) -> None:
    """Not a cell of thousands of characters; the numbers are there, and what is no number stays text."""
    origin = json.loads((runs["k5"] / "results.json").read_text())["provenance"]
    epochs = [{"epoch": n, "loss": 1 / n, "accuracy": 50.125 + n, "seconds": 2.0} for n in range(1, 31)]
    epochs[4]["held_out_accuracy"] = EVIL
    training = {**(origin["backbone"].get("training") or {}), "history": epochs}
    changes = {"provenance": {**origin, "backbone": {**origin["backbone"], "training": training}}}
    both = [changed(runs["k5"], tmp_path / name, **changes) for name in "ab"]
    page = Page(build_report(both, tmp_path / "out"))
    assert "30 epochs" in page.text
    assert sum(text.startswith("Base training of the backbone, 30 epochs") for text in page.text) == 1  # shared
    assert "74.12" in page.text
    assert EVIL in page.text
    assert max(map(len, page.text)) < 5000
