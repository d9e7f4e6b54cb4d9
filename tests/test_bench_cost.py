"""`lysep bench cost` (studies/bench: cost, counts, where): what a sweep does and takes."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from lysep.studies.bench import cost, counts, where
from lysep.studies.runs import Store


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("aten::tanh", "tanh"),
        ("aten::tanh_backward", "tanh"),
        ("aten::addmm", "matrix products"),
        ("aten::_linalg_eigh", "factorizations"),
        ("aten::cholesky_solve", "factorizations"),
        ("aten::copy_", "copies"),
        ("aten::mul", "other arithmetic"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "Python and calls"),
    ],
)
def test_every_operation_is_of_one_kind(operation, kind):
    assert where.kind_of(operation) == kind


@pytest.mark.parametrize("method", ["fast", "adam"])
def test_where_the_time_goes_adds_up_and_is_measured_once(method, tmp_path):
    shares = where.shares(method, Store(tmp_path))
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)
    assert all(share > 0.0 for kind, share in shares.items() if kind != "factorizations")
    assert shares["tanh"] + shares["matrix products"] > 0.2
    assert where.shares(method, Store(tmp_path)) == pytest.approx(shares, rel=1e-5)


def test_the_arithmetic_of_an_adam_step_is_what_pytorch_counts():
    sizes, samples = [2, 10, 10, 10, 2], 50
    model = nn.Sequential(*(m for i, o in itertools.pairwise(sizes) for m in (nn.Linear(i, o), nn.Tanh())))[:-1]
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(torch.rand(samples, 2)), torch.zeros(samples, dtype=torch.long)).backward()
    assert counts.adam_step(sizes, samples, 4).operations == counter.get_total_flops()
    assert counts.adam_step(sizes, samples, 4).tanhs == samples * 30


def test_the_arithmetic_of_a_sweep_counted_by_hand():
    # 2 → 3 → 2 on 5 samples: forward 6+6, reverse 6, moments 9+8 multiplications a sample
    work = counts.local_gain_sweep([2, 3, 2], 5, 8)
    assert work.operations == 2 * 5 * (12 + 6 + 17)
    assert work.tanhs == 15


def test_needed_time_is_work_over_rates():
    work, rates = counts.Work(6.0, 4.0, 10.0), counts.Rates(3.0, 2.0, 5.0)
    assert rates.seconds(work) == 4.0
    assert rates.seconds_of_memory(work) == 2.0
    measured = counts.rates(16, 1000, torch.float64)
    assert all(rate > 1e6 for rate in (measured.operations, measured.tanhs, measured.bytes))


def test_the_exponent_of_a_power_is_found():
    sizes = (1, 10, 40)
    assert cost.exponent(sizes, [3.0 * size**1.7 for size in sizes]) == pytest.approx(1.7)


def test_sweeps_and_steps_take_turns():
    table = cost.in_turn(torch.float32, ("paper", "adam"), rounds=2)
    assert len(table) == 2
    assert all(0.0 < seconds < 1.0 for row in table for seconds in row)


def test_a_point_of_growth_knows_time_and_memory_of_its_own_process(tmp_path):
    points = [cost.Point("adam", 5, 10, samples, steps=4) for samples in (1000, 60_000)]
    said = []
    runs = cost.grow(points, Store(tmp_path), said.append)
    (fast, little), (slow, much) = (runs[point].history[0] for point in points)
    assert slow > 5 * fast
    assert much > little + 4 * 60_000 * 10 * 8  # the activations that the backward pass needs
    assert len(said) == 2
    assert cost.grow(points, Store(tmp_path), said.append).keys() == runs.keys()
    assert len(said) == 2
