"""Flower (flwr): one round in which every client sends its sums once; equal to training on pooled rows.

A client is known by its ``partition-id`` (or ``name``): one that restarts, and so comes back as another node, is asked
again and counted once. A client that does not answer in time is left out altogether, of both streams.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.classifier import DSALClassifier
from dsal.errors import DSALError, InputError
from dsal.integrations.federation import (
    ClientSums,
    agreed,
    facts_of,
    model_of,
    part_of,
    part_of_sums,
    request,
    residue_part,
    sums_of,
    with_residues,
)
from dsal.integrations.masking import BITS, masked, new_keys, unmasked
from dsal.integrations.needs import needs

_POLL = 0.2  # seconds between questions to the SuperLink
Arrays = Mapping[str, NDArray[Any]]
Load = Callable[[Any], tuple[Any, Any]]


@dataclass
class Federation:
    """The result of :func:`federate`.

    Attributes:
        model: learned from all clients in ``clients``.
        clients: names of the clients that were counted, in the order of their phases.
        left_out: name or node of each client that was not, and why.
        received: bytes that each counted client sent.
        error: with ``tolerance``, the bound of ``|W' - W| / |W|`` in the main stream's weights.
        seconds: from the first question to the model.
    """

    model: DSALClassifier
    clients: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    error: float = 0.0
    seconds: float = 0.0


def client_app(load: Load) -> Any:
    """Return a Flower ``ClientApp`` that learns the rows of one client.

    Args:
        load: a function of Flower's ``Context`` that returns X and y.
    """
    flwr, app = needs("flwr.app", "flower"), needs("flwr.clientapp", "flower").ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def answer(message: Any, context: Any) -> Any:
        ask = json.loads(message.content["dsal"]["json"])
        (X, y), options, step = load(context), ask["options"], ask["step"]
        if step == "sums":
            part = part_of(DSALClassifier(**options).fit(X, y), ask["dtype"], ask["tolerance"])
        elif step == "residues":
            weights = message.content["arrays"]["weights"].numpy()
            part = residue_part(options, X, y, weights, ask["classes"], ask["first"], ask["dtype"])
        elif step == "keys":
            private, public = new_keys()
            context.state["dsal"] = flwr.ConfigRecord({"private": private})
            part = ClientSums({}, {**facts_of(options, X, y), "key": public.hex()})
        else:
            sums = sums_of(DSALClassifier(**options).fit(X, y), ask["classes"])
            keys = [bytes.fromhex(key) for key in ask["keys"]]
            part = ClientSums(masked(sums, context.state["dsal"]["private"], keys, ask["bits"]), {})
        facts = {"client": str(context.node_config.get("partition-id", context.node_id)), "facts": part.facts}
        return flwr.Message(_content(flwr, facts, part.arrays), reply_to=message)

    return app


def federate(
    grid: Any, model: DSALClassifier, clients: int, *, least: int | None = None, phases: bool = False,
    secure: bool = False, dtype: str = "float64", tolerance: float = 0.0, bits: int = BITS, timeout: float = 3600.0,
) -> Federation:  # fmt: skip
    """Return the model of all clients' rows; call it in the ``main`` of a Flower ``ServerApp``.

    Args:
        grid: of the ``ServerApp``.
        model: not fitted; its options are those of all clients.
        clients: how many to wait for.
        least: how many are enough when time is up; all by default.
        phases: learn the clients as phases, in the order of their names, with an exact compensation stream: a second
            round. Otherwise the compensation streams of all clients are merged.
        secure: the server gets the sum over clients only: a round for keys, then one for sums under masks. If a client
            is lost in between, the others repeat both without it.
        dtype, tolerance: fewer bytes for a small error: see :func:`dsal.integrations.federation.part_of`.
        bits: of ``secure``, behind the binary point: see :mod:`dsal.integrations.masking`.
        timeout: seconds to wait for the answers of a round.
    """
    started, options = time.monotonic(), request(model)
    if phases and model.compensation is None:
        raise InputError("phases matter to the compensation stream only: leave out phases, or set compensation")
    if secure and (phases or dtype != "float64" or tolerance or "auto" in (model.gamma, model.gamma_comp)):
        raise InputError("secure works without phases, dtype and tolerance, and with numbers for gamma and gamma_comp")
    found = Federation(model)
    server = _Server(grid, options, clients, clients if least is None else least, timeout, found)
    how = {"phases": phases, "dtype": dtype, "tolerance": tolerance}
    found.model = server.hidden(bits) if secure else server.added(how)
    found.seconds = time.monotonic() - started
    return found


@dataclass
class _Answers:
    """The first answer of every client, and the node that it came from."""

    parts: dict[str, ClientSums] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Server:
    """The rounds of one federation; who was counted, and what was received, is noted in ``found``."""

    grid: Any
    options: dict[str, Any]
    clients: int
    least: int
    timeout: float
    found: Federation

    def added(self, how: dict[str, Any]) -> DSALClassifier:
        """Return the sum of the clients' models; with ``how["phases"]``, a second round adds the residues."""
        found, options = self.found, self.options | ({"compensation": None} if how["phases"] else {})
        first, models = self._ask({**how, "step": "sums", "options": options}), {}
        for name, part in first.parts.items():
            try:
                models[name] = model_of(part, options)
            except DSALError as error:
                found.left_out[name] = str(error)
        while True:
            self._count(models)
            found.received = {name: first.parts[name].bytes for name in found.clients}
            found.error = sum(float(first.parts[name].facts.get("error", 0.0)) for name in found.clients)
            total, asks = deepcopy(models[found.clients[0]]), {}
            for name in found.clients:
                if name != found.clients[0]:
                    total.merge(models[name])
                if how["phases"]:  # the main weights at the end of each client's phase
                    facts = {"classes": total.classes_.tolist(), "first": name == found.clients[0]}
                    asks[first.nodes[name]] = (facts, {"weights": np.array(total.coef_main_)})
            if not how["phases"]:
                return total
            second = self._ask({**how, "step": "residues", "options": self.options}, asks)
            lost = self._lost(first, second)
            if not lost:
                return with_residues(total, [second.parts[name] for name in found.clients], self.options)
            for name in lost:  # its rows must not count in one stream only
                del models[name]

    def hidden(self, bits: int) -> DSALClassifier:
        """Return the model of all clients, whose sums arrive under masks."""
        found = self.found
        only: dict[int, tuple[dict[str, Any], Arrays]] | None = None
        while True:
            first = self._ask({"step": "keys", "options": self.options}, only)
            facts, wrong = agreed({name: part.facts for name, part in first.parts.items()}, self.options)
            found.left_out |= dict.fromkeys(wrong, "its features are not those of the others")
            self._count(first.parts.keys() - wrong)
            keys = [first.parts[name].facts.get("key", "") for name in found.clients]
            ask = {"step": "masked", "options": self.options, "classes": facts["classes"], "keys": keys, "bits": bits}
            found.received = {name: found.received.get(name, 0) + first.parts[name].bytes for name in found.clients}
            second = self._ask(ask, {first.nodes[name]: ({}, {}) for name in found.clients})
            lost = self._lost(first, second)
            if not lost:
                sums = unmasked([second.parts[name].arrays for name in found.clients], bits)
                return model_of(part_of_sums(sums, facts, self.options), self.options)
            only = {first.nodes[name]: ({}, {}) for name in found.clients if name not in lost}

    def _count(self, names: Iterable[str]) -> None:
        """Note the clients that are counted, in the order of their phases."""
        self.found.clients = sorted(names, key=_natural)
        if len(self.found.clients) < max(self.least, 1):
            raise InputError(
                f"{len(self.found.clients)} of {self.clients} clients answered, {self.least} are needed: "
                f"{self.found.left_out}"
            )

    def _lost(self, first: _Answers, second: _Answers) -> set[str]:
        """Return the counted clients that did not answer twice; add up the bytes of the others."""
        lost = set(self.found.clients) - second.parts.keys()
        for name in lost:
            why = self.found.left_out.pop(str(first.nodes[name]), "no answer in the second round")
            self.found.left_out[name] = why
        for name in set(self.found.clients) - lost:
            self.found.received[name] += second.parts[name].bytes
        return lost

    def _ask(self, ask: dict[str, Any], only: Mapping[int, tuple[dict[str, Any], Arrays]] | None = None) -> _Answers:
        """Ask every node that is or becomes known until all clients have answered or time is up.

        Args:
            ask: what to ask.
            only: the nodes to ask, and what each is asked and sent besides; all by default.
        """
        flwr, asked, open_, answers = needs("flwr.app", "flower"), set[int](), dict[str, int](), _Answers()
        end = time.monotonic() + self.timeout
        while len(answers.parts) < (self.clients if only is None else len(only)) and time.monotonic() < end:
            for node in set(self.grid.get_node_ids()) - asked:
                asked.add(node)
                if only is None or node in only:
                    facts, arrays = ({}, {}) if only is None else only[node]
                    content, ttl = _content(flwr, {**ask, **facts}, arrays), max(1.0, end - time.monotonic())
                    message = flwr.Message(content, node, flwr.MessageType.TRAIN, ttl=ttl)
                    open_ |= dict.fromkeys(self.grid.push_messages([message]), node)
            for reply in list(self.grid.pull_messages(list(open_))) if open_ else []:
                self._take(reply, open_.pop(reply.metadata.reply_to_message_id), answers)
            if only is not None and not open_:
                return answers
            time.sleep(_POLL)
        self.found.left_out |= {str(node): f"no answer in {self.timeout:g} seconds" for node in open_.values()}
        return answers

    def _take(self, reply: Any, node: int, answers: _Answers) -> None:
        if reply.has_error():
            self.found.left_out[str(node)] = str(reply.error.reason)
            return
        try:
            told = json.loads(reply.content["dsal"]["json"])
            part = ClientSums({name: array.numpy() for name, array in reply.content["arrays"].items()}, told["facts"])
            name = str(told["client"])
        except (KeyError, TypeError, ValueError) as error:
            self.found.left_out[str(node)] = f"its answer cannot be read: {error}"
            return
        if name not in answers.parts:  # a client that came back is counted once
            answers.parts[name], answers.nodes[name] = part, node


def _content(flwr: Any, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    record = flwr.ArrayRecord({name: flwr.Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return flwr.RecordDict({"dsal": flwr.ConfigRecord({"json": json.dumps(facts)}), "arrays": record})


def _natural(name: str) -> tuple[bool, int, str]:
    """Order 2 before 10."""
    return (not name.isdigit(), int(name) if name.isdigit() else 0, name)
