"""Class order and phases: properties over every size of scenario, and the field's own order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsal.data import Scenario, class_order, split_phases
from dsal.errors import InputError

seeds = st.integers(0, 2**32 - 1)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int]:
    """(classes, base, phases), any that are allowed."""
    classes = draw(st.integers(2, 300))
    base = draw(st.integers(1, classes - 1))
    return classes, base, draw(st.integers(1, classes - base))


@given(seeds, st.integers(1, 300))
def test_a_seed_gives_the_permutation_of_numpys_global_seed(seed: int, classes: int) -> None:
    state = np.random.get_state()
    np.random.seed(seed)
    expected = tuple(np.random.permutation(classes))
    np.random.set_state(state)
    assert class_order(seed, classes) == class_order(str(seed), classes) == expected


def test_1993_is_the_order_of_the_field() -> None:
    order = class_order("1993", 100)
    assert order[:10] == (68, 56, 78, 8, 23, 84, 90, 65, 74, 76)
    assert order[-5:] == (67, 29, 49, 57, 33)


def test_natural_order() -> None:
    assert class_order("natural", 5) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("order", ["Natural", "", "-1", "1.5", -1, 2**32, True, None, 1.0])
def test_other_orders_are_refused(order: object) -> None:
    with pytest.raises(InputError, match="natural"):
        class_order(order, 10)


@given(sizes())
def test_no_class_is_dropped_and_the_first_phases_are_the_larger(size: tuple[int, int, int]) -> None:
    classes, base, phases = size
    ranges = split_phases(classes, base, phases)
    assert [p for phase in ranges for p in phase] == list(range(classes))
    assert len(ranges) == phases + 1
    assert len(ranges[0]) == base
    lengths = [len(phase) for phase in ranges[1:]]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) >= 1


def test_the_paper_s_settings() -> None:
    assert [len(p) for p in split_phases(100, None, 25)] == [50] + [2] * 25
    assert [len(p) for p in split_phases(100, 50, 50)] == [50] + [1] * 50
    assert [len(p) for p in split_phases(100, 50, 7)] == [50, 8, 7, 7, 7, 7, 7, 7]
    assert len(split_phases(1623, None, 10)[0]) == 812


def test_all_classes_as_base_is_joint_training() -> None:
    assert split_phases(10, 10, 0) == [range(10)]


@pytest.mark.parametrize(
    "arguments", [(10, 5, 6), (10, 5, 0), (10, 5, -1), (10, 0, 5), (10, 11, 0), (10, 10, 1), (0, None, 0)]
)
def test_splits_that_cannot_be_are_refused(arguments: tuple[int, int | None, int]) -> None:
    with pytest.raises(InputError):
        split_phases(*arguments)


@given(sizes(), seeds)
def test_positions_undo_the_order(size: tuple[int, int, int], seed: int) -> None:
    classes, base, phases = size
    scenario = Scenario.deal(classes, base=base, phases=phases, order=seed)
    every = np.arange(classes)
    positions = scenario.positions(every)
    assert sorted(positions) == list(range(classes))
    assert [scenario.order[p] for p in positions] == list(range(classes))


@given(sizes(), seeds)
def test_phase_rows_share_out_all_rows(size: tuple[int, int, int], seed: int) -> None:
    classes, base, phases = size
    scenario = Scenario.deal(classes, base=base, phases=phases, order=seed)
    labels = np.random.default_rng(0).integers(0, classes, 500)
    rows = [scenario.phase_rows(labels, k) for k in range(phases + 1)]
    assert sorted(np.concatenate(rows)) == list(range(500))
    for k, mine in enumerate(rows):
        assert set(labels[mine].tolist()) <= set(scenario.labels(k))
        assert np.array_equal(np.sort(np.concatenate(rows[: k + 1])), scenario.seen_rows(labels, k))
        assert scenario.seen(k) == sum(len(scenario.labels(j)) for j in range(k + 1))
    assert scenario.last == phases


def test_labels_may_be_tensors_arrays_or_lists_of_any_integer_type() -> None:
    scenario = Scenario(order=(2, 0, 1), phases=(range(2), range(2, 3)))
    for labels in ([0, 1, 2], np.array([0, 1, 2], dtype=np.int16), torch.tensor([0, 1, 2])):
        assert scenario.positions(labels).tolist() == [1, 2, 0]
        assert scenario.phase_rows(labels, 1).tolist() == [1]
    assert scenario.positions([]).tolist() == []


@pytest.mark.parametrize("labels", [[0, 3], [-1], [0.0, 1.0], [[0]]])
def test_labels_outside_the_scenario_are_refused(labels: list[int]) -> None:
    with pytest.raises(InputError, match="labels"):
        Scenario((2, 0, 1), (range(3),)).positions(labels)


def test_phases_outside_the_scenario_are_refused() -> None:
    scenario = Scenario.deal(10, phases=5)
    for k in (-1, 6):
        with pytest.raises(InputError, match="0 to 5"):
            scenario.seen(k)


@pytest.mark.parametrize(
    ("order", "phases"),
    [
        ((0, 0, 1), (range(3),)),
        ((1, 2, 3), (range(3),)),
        ((0, 1, 2), (range(2),)),
        ((0, 1, 2), (range(2), range(1, 3))),
        ((0, 1, 2), (range(3), range(3, 3))),
    ],
)
def test_scenarios_that_lose_or_repeat_a_class_are_refused(order: tuple[int, ...], phases: tuple[range, ...]) -> None:
    with pytest.raises(InputError):
        Scenario(order, phases)
