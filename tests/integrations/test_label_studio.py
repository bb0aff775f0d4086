"""An ML backend of a real Label Studio: `pip install label-studio` in a venv of its own, its bin on the PATH."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.docs.pages import ROOT, shown_command

from dsal import ImageModel
from dsal.backbones import Backbone

pytestmark = pytest.mark.slow
STUDIO = shutil.which("label-studio")
if STUDIO is None:
    pytest.skip("needs label-studio on the PATH: pip install label-studio in a venv", allow_module_level=True)
pytest.importorskip("fastapi")
PAGE = ROOT / "docs" / "integrations" / "label-studio.md"
KEY, TOKEN = "0123456789abcdef0123456789abcdef01234567", "a token of some length"
LABELS = ("char 0", "char 37", "char 74")
CONFIG = '<View><Image name="image" value="$image"/><Choices name="kind" toName="image">{}</Choices></View>'.format(
    "".join(f'<Choice value="{label}"/>' for label in LABELS)
)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Studio:
    """Label Studio with its SQLite, and calls of its API."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        options = ["--no-browser", "--data-dir", folder, "--port", port, "--internal-host", "127.0.0.1"]
        options += ["--username", "a@b.example", "--password", "secret-password", "--user-token", KEY]
        env = {**os.environ, "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true", "SSRF_PROTECTION_ENABLED": "false"}
        env |= {
            "COLLECT_ANALYTICS": "0",
            "LATEST_VERSION_CHECK": "false",
            "ML_BLOCK_LOCAL_IP": "false",
            "WEBHOOK_TIMEOUT": "60",
        }
        for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
            env.pop(name, None)
        self.log = (folder / "studio.log").open("wb")
        command = [str(STUDIO), "start", *map(str, options), "--enable-legacy-api-token"]
        self.process = subprocess.Popen(command, env=env, cwd=folder, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 560
        while True:  # the first start creates the database
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
                return
            except OSError:
                assert self.process.poll() is None, (folder / "studio.log").read_text()[-3000:]
                assert time.monotonic() < end, (folder / "studio.log").read_text()[-3000:]
                time.sleep(1)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Token {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:2000]!r}") from error
        return json.loads(text) if text else None

    def upload(self, project: int, paths: list[Path]) -> None:
        for path in paths:
            head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{path.parent.name}-{path.name}"\r\n'
            body = head.encode() + b"Content-Type: image/png\r\n\r\n" + path.read_bytes() + b"\r\n--x--\r\n"
            headers = {"Authorization": f"Token {KEY}", "Content-Type": "multipart/form-data; boundary=x"}
            request = urllib.request.Request(f"{self.url}/api/projects/{project}/import", body, headers)
            urllib.request.urlopen(request, timeout=120).read()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    started = Studio(tmp_path_factory.mktemp("studio"))
    yield started
    started.process.terminate()
    started.process.wait(60)


class Server:
    """``dsal serve --label-studio`` at a fixed port."""

    def __init__(self, models: Path, weights: Path, studio: Studio, port: int) -> None:
        change = {"http://127.0.0.1:8080": studio.url, "choose-a-long-token": TOKEN}
        self.arguments: list[object] = [change.get(word, word) for word in shown_command(PAGE, "dsal serve")[1:]]
        self.arguments += ["--models", models, "--backbone", weights, "--expansion-size", 128, "--port", port]
        self.start()

    def start(self) -> None:
        env = {**os.environ, "LABEL_STUDIO_API_KEY": KEY, "DSAL_ONNX": "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "dsal", *map(str, self.arguments)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("http")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def choice(label: str) -> list[dict[str, Any]]:
    return [{"from_name": "kind", "to_name": "image", "type": "choices", "value": {"choices": [label]}}]


def test_annotate_watch_correct_and_delete(
    studio: Studio, tmp_path: Path, weights: Path, backbone: Backbone, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 pictures of three classes, 30 annotated one by one; one is changed, one deleted; the server is killed."""
    monkeypatch.setenv("DSAL_ONNX", "0")  # features of the model to compare with come from the server's runtime
    port = free_port()
    server = Server(tmp_path / "models", weights, studio, port)
    try:
        project = studio.call("POST", "/api/projects", {"title": "characters", "label_config": CONFIG})["id"]
        paths = [path for label in LABELS for path in sorted((album / "first" / label).iterdir())[:15]]
        paths += [path for label in LABELS for path in sorted((album / "test" / label).iterdir())[:5]]
        studio.upload(project, paths)
        tasks = studio.call("GET", f"/api/tasks?project={project}&page_size=100&fields=all")["tasks"]
        assert len(tasks) == 60
        truth = {task["id"]: next(label for label in LABELS if f"-{label.replace(' ', '_')}-" in task["data"]["image"]
                                  or f"-{label}-" in task["data"]["image"]) for task in tasks}  # fmt: skip
        url = f"http://127.0.0.1:{port}/label-studio/characters"
        backend = {"project": project, "url": url, "auth_method": "BASIC_AUTH", "title": "dsal"}
        backend |= {"basic_auth_user": "dsal", "basic_auth_pass": TOKEN}
        backend_id = studio.call("POST", "/api/ml/", backend)["id"]
        assert studio.call("GET", f"/api/ml/{backend_id}")["state"] == "CO"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        studio.call("POST", "/api/webhooks/", {"project": project, "url": f"{url}/webhook", "headers": headers})

        def predicted() -> list[dict[str, Any]]:
            """What Label Studio gets when it asks for all tasks."""
            body = {"tasks": tasks, "project": f"{project}.0", "label_config": CONFIG}
            request = urllib.request.Request(
                f"{url}/predict", json.dumps(body).encode(), {**headers, "Content-Type": "application/json"}
            )
            return json.load(urllib.request.urlopen(request, timeout=120))["results"]  # type: ignore[no-any-return]

        assert all(one["result"] == [] for one in predicted())
        order = sorted(tasks, key=lambda task: (task["id"] * 7919) % 104729)[:30]
        annotations, seen = {}, set()
        for number, task in enumerate(order):
            label = truth[task["id"]]
            annotations[task["id"]] = studio.call(
                "POST", f"/api/tasks/{task['id']}/annotations/", {"result": choice(label)}
            )["id"]
            seen.add(label)
            if number < 4:
                assert bool(predicted()[0]["result"]) == (len(seen) >= 2)
            if number == 14:
                server.kill()  # acknowledged means durable
                server.start()
        found = predicted()
        chosen = [one["result"][0]["value"]["choices"][0] for one in found]
        right = [label == truth[task["id"]] for label, task in zip(chosen, tasks, strict=True)]
        assert np.mean(right) > 0.6
        assert all(0 <= one["score"] <= one["result"][0]["score"] <= 1 for one in found)

        changed, deleted, missed = order[3]["id"], order[7]["id"], order[11]["id"]
        wrong = next(label for label in LABELS if label != truth[changed])
        studio.call("PATCH", f"/api/annotations/{annotations[changed]}/", {"result": choice(wrong)})
        studio.call("DELETE", f"/api/annotations/{annotations[deleted]}/")
        server.kill()
        studio.call("DELETE", f"/api/annotations/{annotations[missed]}/")  # nobody listens
        server.start()
        studio.call("POST", f"/api/ml/{backend_id}/train", {})  # Start training catches up
        assert len(studio.call("GET", f"/api/tasks/{missed}/")["annotations"]) == 0

        label_of = {**truth, changed: wrong}
        files = {task["id"]: task["data"]["image"] for task in order}
        expected = ImageModel(backbone, expansion_size=128)
        for task_id in (task["id"] for task in order if task["id"] not in (deleted, missed)):
            request = urllib.request.Request(studio.url + files[task_id], headers={"Authorization": f"Token {KEY}"})
            image = urllib.request.urlopen(request, timeout=60).read()
            expected.learn(([image], [label_of[task_id]]))
        model = ImageModel.load(tmp_path / "models" / "characters.dsal")
        assert sorted(model.counts.items()) == sorted(expected.counts.items())
        ours, theirs = (one.classifier.coef_main_[:, np.argsort(one.classes)] for one in (model, expected))
        assert np.abs(ours - theirs).max() < 1e-8
    finally:
        server.kill()
