"""What DS-AL, ACIL and GKEAL share: the streams of the paper behind the contract of a method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.activations import apply, resolve
from dsal.blas import backend_for
from dsal.errors import InputError
from dsal.expansion import Expansion, expansions
from dsal.methods.contract import Method, Samples, State
from dsal.ridge import Ridge
from dsal.scoring import Term, best_columns
from dsal.streams import Block, DualStream

Self = TypeVar("Self", bound="Analytic")


class Streams:
    """One or two streams that are made when the first phase comes, and can be taken apart into arrays.

    Args:
        expansion: name of the expansion.
        expansion_size: d_B.
        gamma: ridge of the main stream.
        gamma_comp: ridge of the compensation stream.
        compensation: C; with 0 there is no compensation stream.
        activation: sigma_C.
        seed: of the expansion.
    """

    def __init__(
        self,
        *,
        expansion: str,
        expansion_size: int,
        gamma: float,
        gamma_comp: float,
        compensation: float,
        activation: str,
        seed: int,
    ) -> None:
        if expansion_size < 1 or min(gamma, gamma_comp) <= 0 or compensation < 0:
            raise InputError(
                "expansion_size must be 1 or more, gamma and gamma_comp above 0, compensation 0 or more; got "
                f"{expansion_size}, {gamma}, {gamma_comp}, {compensation}"
            )
        self.kind, self.sigma = expansions.get(expansion), resolve(activation)
        self.size, self.gamma, self.gamma_comp = expansion_size, gamma, gamma_comp
        self.compensation, self.seed = compensation, seed
        self.backend = backend_for("auto")
        self.streams: DualStream | None = None

    @property
    def exemplar_free(self) -> bool:
        """Whether the expansion holds no rows of the first phase."""
        return not self.kind.wants_rows

    @property
    def classes_seen(self) -> int:
        """Number of classes seen."""
        return 0 if self.streams is None else self.streams.main.classes

    def learn(
        self, X: Samples, y: NDArray[np.int64], classes: Sequence[int], expansion: Expansion | None = None
    ) -> None:
        """Learn one phase: X (n, d), y (n,) positions among ``classes``; the first with an expansion of one's own."""
        fresh = self.streams is None
        streams = self._build(expansion or self.build_expansion(X)) if self.streams is None else self.streams
        columns = torch.from_numpy(y).to(self.backend.device)

        def read() -> Iterator[Block]:
            for start, features in self._blocks(X, streams):
                yield Block(features, columns[start : start + len(features)])

        present = torch.tensor(list(classes), device=self.backend.device)
        streams.learn(read, len(X), present, max(streams.main.classes, classes[-1] + 1))
        if fresh:
            self.streams = streams

    def scores(self, X: Samples) -> NDArray[np.float64]:
        """X_M W_M + C X_C W_C, eq. (19): (n, classes seen)."""
        streams = self.streams
        if streams is None:
            raise InputError("nothing has been learned yet")
        out = np.empty((len(X), streams.main.classes))
        for start, features in self._blocks(X, streams):
            z = streams.expand(features)
            logits = self.backend.product(apply(streams.main_activation, z), streams.main.weights())
            if streams.comp is not None:
                logits += self.compensation * self.backend.product(apply(self.sigma, z), streams.comp.weights())
            out[start : start + len(features)] = logits.cpu().numpy()
        return out

    def predict(self, X: Samples) -> NDArray[np.int64]:
        """The column of the largest score, (n,)."""
        streams = self.streams
        if streams is None:
            raise InputError("nothing has been learned yet")
        terms = [Term(streams.main_activation, streams.main.weights())]
        if streams.comp is not None:
            terms.append(Term(self.sigma, self.compensation * streams.comp.weights()))
        return best_columns(streams.expansion, terms, X, self.backend)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers of the expansion and of every stream; empty before the first phase."""
        if self.streams is None:
            return {}
        parts = {"main": self.streams.main, **({} if self.streams.comp is None else {"comp": self.streams.comp})}
        buffers = self.streams.expansion.state_dict()
        return {
            **{f"expansion.{name}": buffer.cpu().numpy() for name, buffer in buffers.items()},
            **{f"{part}.{name}": array for part, ridge in parts.items() for name, array in ridge.state().items()},
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from :meth:`arrays`, bit for bit."""
        if not arrays:
            return
        buffers = {name: torch.from_numpy(array) for name, array in _under("expansion.", arrays).items()}
        streams = self._build(self.kind(**buffers).to(self.backend.device))
        streams.main = Ridge.from_state(_under("main.", arrays), self.gamma, self.backend)
        if streams.comp is not None:
            streams.comp = Ridge.from_state(_under("comp.", arrays), self.gamma_comp, self.backend)
        self.streams = streams

    def build_expansion(self, X: Samples) -> Expansion:
        """The expansion of its name, for the first phase X (n, d)."""
        rows = torch.empty(0, X.shape[1], dtype=torch.float64)
        if self.kind.wants_rows:
            unique = np.unique(np.asarray(X, dtype=np.float64), axis=0)
            rows = torch.from_numpy(unique[np.random.RandomState(self.seed).permutation(len(unique))[: self.size]])
        return self.kind.build(X.shape[1], self.size, self.seed, rows).to(self.backend.device)

    def _build(self, expansion: Expansion) -> DualStream:
        return DualStream(
            expansion,
            main_activation=resolve("relu"),
            activation=self.sigma if self.compensation > 0 else None,
            gamma=self.gamma,
            gamma_comp=self.gamma_comp,
            cleanse=True,
            backend=self.backend,
        )

    def _blocks(self, X: Samples, streams: DualStream) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, rows in float64), in turn."""
        for start in range(0, len(X), streams.block_rows):
            rows = np.asarray(X[start : start + streams.block_rows], dtype=np.float64)
            yield start, torch.from_numpy(rows).to(self.backend.device)


def _under(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


class Analytic(Method):
    """A method that is nothing but streams, made by its constructor; what is left to it is how to learn a phase."""

    options: ClassVar[tuple[str, ...]]
    """Names of the constructor's arguments, each an attribute."""
    _streams: Streams

    @property
    def exemplar_free(self) -> bool:
        return self._streams.exemplar_free

    @property
    def classes_seen(self) -> int:
        return self._streams.classes_seen

    def scores(self, X: Samples) -> NDArray[np.float64]:
        return self._streams.scores(X)

    def predict(self, X: Samples) -> NDArray[np.int64]:
        return self._streams.predict(X)

    def state(self) -> State:
        return State(self._streams.arrays(), self._options())

    @classmethod
    def from_state(cls: type[Self], state: State) -> Self:
        method = cls(**state.facts)
        method._streams.restore(state.arrays)
        return method

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.options}
