"""Weights that have seen a later class are refused, whatever the order and the split."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsal.backbones import Backbone
from dsal.backbones.extraction import card_record
from dsal.data import Scenario
from dsal.errors import LeakError
from dsal.protocol.provenance import check_no_leak


def record(seen: list[int] | None, dataset: str | None = "cifar100") -> dict[str, object]:
    return {"dataset": dataset, "seen_classes": seen, "class_order": "natural"}


@given(st.sets(st.integers(0, 19)), st.integers(0, 100), st.integers(1, 19))
def test_refused_exactly_when_a_later_class_was_seen(seen: set[int], seed: int, base: int) -> None:
    scenario = Scenario.deal(20, base=base, phases=20 - base, order=seed)
    base_labels = {scenario.order[p] for p in range(base)}
    if seen <= base_labels:
        assert check_no_leak(record(sorted(seen)), scenario, "cifar100") == "base classes"
    else:
        with pytest.raises(LeakError):
            check_no_leak(record(sorted(seen)), scenario, "cifar100")


def test_the_shipped_setting_and_the_field_s_other_order() -> None:
    first_half = record(list(range(50)))
    assert check_no_leak(first_half, Scenario.deal(100, phases=25), "cifar100") == "base classes"
    assert check_no_leak(first_half, Scenario.deal(100, base=60, phases=10), "cifar100") == "base classes"
    with pytest.raises(LeakError, match=r"10 classes .* 40 \(phase 1\).*natural.*50 base classes"):
        check_no_leak(first_half, Scenario.deal(100, base=40, phases=6), "cifar100")
    with pytest.raises(LeakError):
        check_no_leak(first_half, Scenario.deal(100, phases=25, order="1993"), "cifar100")


def test_weights_from_elsewhere_pass_and_are_marked() -> None:
    scenario = Scenario.deal(100, phases=25)
    everything = list(range(100))
    assert check_no_leak(record(None, dataset=None), scenario, "cifar100") == "generic"
    assert check_no_leak(record(everything, dataset="omniglot"), scenario, "cifar100") == "other data set"
    assert check_no_leak({}, scenario, "cifar100") == "unknown"


def test_in_doubt_about_the_data_set_labels_count() -> None:
    scenario, everything = Scenario.deal(100, phases=25), list(range(100))
    with pytest.raises(LeakError):
        check_no_leak(record(everything), scenario, None)
    with pytest.raises(LeakError):
        check_no_leak(record(everything, dataset=None), scenario, "cifar100")


def test_cards_and_their_records_are_judged_alike(backbone: Backbone) -> None:
    backbone.card = replace(backbone.card, dataset="omniglot", seen_classes=(0, 1, 2))
    for card in (backbone.card, card_record(backbone)):
        assert check_no_leak(card, Scenario.deal(6, phases=3), "omniglot") == "base classes"
        with pytest.raises(LeakError):
            check_no_leak(card, Scenario.deal(6, base=2, phases=3), "omniglot")
    generic = replace(backbone.card, dataset=None, seen_classes=None)
    assert check_no_leak(generic, Scenario.deal(6, phases=3), "omniglot") == "generic"
