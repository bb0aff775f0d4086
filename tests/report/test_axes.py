"""Ticks and labels, by what must hold for any data."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dsal.report.charts import log_axis, pick_phases, spread, value_axis

percent = st.floats(0, 100)


@given(st.lists(percent, min_size=1))
def test_value_axis_holds_the_values_between_round_numbers(values: list[float]) -> None:
    low, high, ticks = value_axis(values, top=100)
    assert low <= min(values) <= max(values) <= high <= 100
    assert (low, high) == (ticks[0][0], ticks[-1][0])
    assert 2 <= len(ticks) <= 9
    assert len({label for _, label in ticks}) == len(ticks)


@given(st.lists(st.floats(1e-6, 1e5), min_size=1))
def test_log_axis_holds_the_values(values: list[float]) -> None:
    low, high, ticks = log_axis(values)
    assert 0 < low <= min(values) * (1 + 1e-9)
    assert max(values) <= high * (1 + 1e-9)
    assert low <= ticks[0][0]
    assert ticks[-1][0] <= high


@given(st.integers(0, 2000))
def test_phases_are_few_and_include_both_ends(last: int) -> None:
    phases = pick_phases(last)
    assert phases[0] == 0
    assert phases[-1] == last
    assert phases == sorted(set(phases))
    assert len(phases) <= 8


@given(st.lists(percent, max_size=12))
def test_labels_never_touch_and_keep_their_order(positions: list[float]) -> None:
    placed = spread(positions, gap=5, high=100)
    assert all(place <= 100 for place in placed)
    pairs = sorted(zip(positions, placed, strict=True))
    assert all(two[1] - one[1] >= 5 - 1e-9 for one, two in pairwise(pairs) if one[0] < two[0])
    ordered = sorted(placed)
    assert all(b - a >= 5 - 1e-9 for a, b in pairwise(ordered))
