"""Flower (flwr): one round in which every client sends its sums once; equal to training on pooled rows.

A client is known by its ``partition-id`` (or ``name``): one that restarts, and so comes back as another node, is asked
again and counted once. A client that does not answer in time is left out altogether, of both streams.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.classifier import DSALClassifier
from dsal.errors import DSALError, InputError
from dsal.integrations.federation import Part, model_of, part_of, request, residue_part, with_residues
from dsal.integrations.needs import needs

_POLL = 0.2  # seconds between questions to the SuperLink
Load = Callable[[Any], tuple[Any, Any]]


@dataclass
class Federation:
    """The result of :func:`federate`.

    Attributes:
        model: learned from all clients in ``clients``.
        clients: names of the clients that were counted, in the order of their phases.
        left_out: name or node of each client that was not, and why.
        received: bytes that each counted client sent.
        seconds: from the first question to the model.
    """

    model: DSALClassifier
    clients: list[str]
    left_out: dict[str, str]
    received: dict[str, int]
    seconds: float


def client_app(load: Load) -> Any:
    """Return a Flower ``ClientApp`` that learns the rows of one client.

    Args:
        load: a function of Flower's ``Context`` that returns X and y.
    """
    flwr, app = needs("flwr.app", "flower"), needs("flwr.clientapp", "flower").ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def sums(message: Any, context: Any) -> Any:
        ask = json.loads(message.content["dsal"]["json"])
        X, y = load(context)
        if "classes" in ask:
            weights = message.content["arrays"]["weights"].numpy()
            part = residue_part(ask["options"], X, y, weights, ask["classes"], ask["first"], ask["dtype"])
        else:
            options = ask["options"] | ({"compensation": None} if ask["phases"] else {})
            part = part_of(DSALClassifier(**options).fit(X, y), ask["dtype"])
        facts = {"client": str(context.node_config.get("partition-id", context.node_id)), "facts": part.facts}
        return flwr.Message(_content(flwr, facts, part.arrays), reply_to=message)

    return app


def federate(
    grid: Any, model: DSALClassifier, clients: int, *, least: int | None = None, phases: bool = False,
    dtype: str = "float64", timeout: float = 3600.0,
) -> Federation:  # fmt: skip
    """Return the model of all clients' rows; call it in the ``main`` of a Flower ``ServerApp``.

    Args:
        grid: of the ``ServerApp``.
        model: not fitted; its options are those of all clients.
        clients: how many to wait for.
        least: how many are enough when time is up; all by default.
        phases: learn the clients as phases, in the order of their names, with an exact compensation stream: a second
            round. Otherwise the compensation streams of all clients are merged.
        dtype: ``"float32"`` halves the bytes; see docs/integrations/flower.md for what it costs.
        timeout: seconds to wait for the answers of a round.
    """
    started, options, least = time.monotonic(), request(model), clients if least is None else least
    if phases and model.compensation is None:
        raise InputError("phases matter to the compensation stream only: leave out phases, or set compensation")
    round_ = _Round(grid, timeout)
    ask = {"options": options, "phases": phases, "dtype": dtype}
    round_.run(lambda node: (ask, {}), clients)
    used = options | ({"compensation": None} if phases else {})
    models, received = _models(round_, used), {name: part.bytes for name, part in round_.parts.items()}
    while True:
        names = sorted(models, key=_natural)
        if len(names) < max(least, 1):
            raise InputError(f"{len(names)} of {clients} clients answered, {least} are needed: {round_.left_out}")
        total, questions = _add(models, names)
        if not phases:
            break
        second = _Round(grid, timeout, only={round_.nodes[name] for name in names})
        asks = {
            round_.nodes[name]: ({**ask, "classes": classes, "first": name == names[0]}, {"weights": weights})
            for name, (classes, weights) in zip(names, questions, strict=True)
        }
        second.run(asks.__getitem__, len(names))
        lost = set(names) - set(second.parts)
        if not lost:
            total = with_residues(total, [second.parts[name] for name in names], options)
            received = {name: received[name] + second.parts[name].bytes for name in names}
            break
        for name in lost:  # its rows must not count in one stream only
            round_.left_out[name] = second.left_out.get(str(round_.nodes[name]), "no answer in the second round")
            del models[name]
    return Federation(total, names, round_.left_out, {n: received[n] for n in names}, time.monotonic() - started)


@dataclass
class _Round:
    """One question to every node, and the answers by client."""

    grid: Any
    timeout: float
    only: set[int] | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def run(self, question: Callable[[int], tuple[dict[str, Any], dict[str, NDArray[Any]]]], clients: int) -> None:
        """Ask every node that is or becomes known until enough clients have answered or time is up."""
        flwr, asked, open_ = needs("flwr.app", "flower"), set[int](), dict[str, int]()
        end = time.monotonic() + self.timeout
        while len(self.parts) < clients and time.monotonic() < end:
            for node in set(self.grid.get_node_ids()) - asked:
                asked.add(node)
                if self.only is None or node in self.only:
                    facts, arrays = question(node)
                    ttl = max(1.0, end - time.monotonic())
                    message = flwr.Message(_content(flwr, facts, arrays), node, flwr.MessageType.TRAIN, ttl=ttl)
                    open_ |= dict.fromkeys(self.grid.push_messages([message]), node)
            for reply in list(self.grid.pull_messages(list(open_))) if open_ else []:
                self._take(reply, open_.pop(reply.metadata.reply_to_message_id))
            if self.only is not None and not open_:
                return
            time.sleep(_POLL)
        self.left_out |= {str(node): f"no answer in {self.timeout:g} seconds" for node in open_.values()}

    def _take(self, reply: Any, node: int) -> None:
        if reply.has_error():
            self.left_out[str(node)] = str(reply.error.reason)
            return
        try:
            told = json.loads(reply.content["dsal"]["json"])
            part = Part({name: array.numpy() for name, array in reply.content["arrays"].items()}, told["facts"])
            name = str(told["client"])
        except (KeyError, TypeError, ValueError) as error:
            self.left_out[str(node)] = f"its answer cannot be read: {error}"
            return
        if name not in self.parts:  # a client that came back is counted once
            self.parts[name], self.nodes[name] = part, node


def _models(answers: _Round, options: Mapping[str, Any]) -> dict[str, DSALClassifier]:
    """Return the model of each client; clients whose answers are wrong are left out."""
    models = {}
    for name, part in answers.parts.items():
        try:
            models[name] = model_of(part, options)
        except DSALError as error:
            answers.left_out[name] = str(error)
    return models


def _add(
    models: Mapping[str, DSALClassifier], names: list[str]
) -> tuple[DSALClassifier, list[tuple[list[Any], NDArray[Any]]]]:
    """Return the sum, and after each client the classes so far and W_M (d_B x classes)."""
    from copy import deepcopy

    total, after = deepcopy(models[names[0]]), []
    for name in names:
        if name != names[0]:
            total.merge(models[name])
        after.append((total.classes_.tolist(), np.array(total.coef_main_)))
    return total, after


def _content(flwr: Any, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    record = flwr.ArrayRecord({name: flwr.Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return flwr.RecordDict({"dsal": flwr.ConfigRecord({"json": json.dumps(facts)}), "arrays": record})


def _natural(name: str) -> tuple[bool, int, str]:
    """Order 2 before 10."""
    return (not name.isdigit(), int(name) if name.isdigit() else 0, name)
