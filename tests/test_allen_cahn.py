"""The Allen-Cahn solver against exact solutions, against a solver of another kind, and against what is known of it."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from lysep.problems import interface
from lysep.problems.allen_cahn import (
    EPSILON,
    STEP,
    TIMES,
    evolve,
    extrapolated,
    grid,
    initial_value,
    interpolate,
    solution,
)


def steps(time):
    return math.ceil(time / STEP)


def disc(radius, points=128, epsilon=EPSILON):
    x, y = grid(points)
    return -np.tanh((np.hypot(x, y) - radius) / (math.sqrt(2) * epsilon))


def shifted_derivative(u, axis, h):
    """First derivative by central differences of fourth order."""
    return sum(c * np.roll(u, -s, axis) for s, c in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))) / h


def test_the_initial_value_is_the_printed_one():
    for x, y in ((0.0, 0.0), (0.13, -0.31), (-0.5, 0.5), (0.0, 0.39)):
        upper = math.tanh((math.sqrt(x**2 + (y - 0.2) ** 2) - 0.19) / (math.sqrt(2) * 0.02))
        lower = math.tanh((math.sqrt(x**2 + (y + 0.2) ** 2) - 0.19) / (math.sqrt(2) * 0.02))
        assert initial_value(np.array([x]), np.array([y]))[0] == pytest.approx(-upper - lower + 1, abs=1e-14)


@pytest.mark.parametrize("start", [0.3, -0.01, 1.0, 0.0])
def test_a_constant_follows_the_reaction(start):
    """u = u0 e^s / sqrt(1 + u0² (e^2s − 1)), s = t/ε²: the solution of the ordinary differential equation."""
    s = 0.001 / EPSILON**2
    exact = start * math.exp(s) / math.sqrt(1 + start**2 * (math.exp(2 * s) - 1))
    np.testing.assert_allclose(evolve(np.full((8, 8), start), 0.001, 7), exact, atol=1e-13)


def test_a_small_wave_grows_and_decays_as_the_linear_equation_says():
    x, y = grid(32)
    waves = np.cos(2 * np.pi * x) * np.sin(4 * np.pi * y) + np.sin(6 * np.pi * x)
    rates = [1 / 0.1**2 - 4 * np.pi**2 * (1 + 4), 1 / 0.1**2 - 4 * np.pi**2 * 9]
    exact = np.exp(0.01 * rates[0]) * np.cos(2 * np.pi * x) * np.sin(4 * np.pi * y)
    exact += np.exp(0.01 * rates[1]) * np.sin(6 * np.pi * x)
    np.testing.assert_allclose(evolve(1e-6 * waves, 0.01, 5, epsilon=0.1) / 1e-6, exact, atol=1e-9)


def test_a_straight_interface_stands_still():
    x, _ = grid()
    u = np.tanh((0.25 - abs(x)) / (math.sqrt(2) * EPSILON))
    np.testing.assert_allclose(extrapolated(u, 0.004, steps(0.004)), u, atol=1e-5)


def test_a_solver_of_another_kind_agrees():
    """Central differences of sixth order and a Runge-Kutta method of order 5 with a step control of its own."""
    points, time = 128, 0.0005
    stencil = {0: -49 / 18, 1: 3 / 2, 2: -3 / 20, 3: 1 / 90}

    def right_hand_side(t, flat):
        u = flat.reshape(points, points)
        laplacian = 2 * stencil[0] * u
        for shift in (1, 2, 3):
            for axis in (0, 1):
                laplacian = laplacian + stencil[shift] * (np.roll(u, shift, axis) + np.roll(u, -shift, axis))
        return (laplacian * points**2 + (u - u**3) / EPSILON**2).ravel()

    u0 = initial_value(*grid(points))
    other = solve_ivp(right_hand_side, (0.0, time), u0.ravel(), rtol=1e-6, atol=1e-8).y[:, -1].reshape(points, points)
    ours = extrapolated(u0, time, steps(time))
    assert abs(ours - u0).max() > 0.1
    np.testing.assert_allclose(ours, other, atol=2e-4)


def test_the_error_is_of_second_order_in_the_step_and_of_fourth_when_extrapolated():
    u0, time, count = initial_value(*grid()), 0.001, 20
    exact = extrapolated(u0, time, 16 * count)
    plain = [abs(evolve(u0, time, n) - exact).max() for n in (count, 2 * count, 4 * count)]
    assert plain[0] / plain[1] == pytest.approx(4, rel=0.05)
    assert plain[1] / plain[2] == pytest.approx(4, rel=0.05)
    better = [abs(extrapolated(u0, time, n) - exact).max() for n in (count, 2 * count)]
    assert better[0] / better[1] == pytest.approx(16, rel=0.2)
    assert abs(extrapolated(u0, time, steps(time)) - exact).max() < 3e-7


def test_a_finer_grid_changes_nothing():
    time, coarse = 0.001, {}
    for points in (32, 64, 128):
        coarse[points] = extrapolated(initial_value(*grid(points)), time, steps(time))[:: points // 32, :: points // 32]
    finest = extrapolated(initial_value(*grid(256)), time, steps(time))[::8, ::8]
    errors = {points: abs(u - finest).max() for points, u in coarse.items()}
    assert errors[128] < 1e-7
    assert errors[64] < 1e-3  # spectral: the number of digits doubles with the number of points
    assert errors[32] > 1e-2


def test_the_energy_decays():
    """∫ |∇u|²/2 + (1 − u²)²/(4ε²), of which the equation is the gradient flow."""
    u, energies = initial_value(*grid()), []
    for _ in range(30):
        slopes = sum(shifted_derivative(u, axis, 1 / 128) ** 2 for axis in (0, 1))
        energies.append(float((slopes / 2 + (1 - u**2) ** 2 / (4 * EPSILON**2)).mean()))
        u = evolve(u, 0.0005, 40)
    assert all(later < earlier for earlier, later in pairwise(energies))
    assert energies[-1] < 0.7 * energies[0]


def radius_squared(u):
    """From the zero of u on the positive x-axis."""
    axis = np.linspace(0, 0.5, 5001)
    values = interpolate(u)(axis, 0 * axis)
    after = int(np.argmax(values < 0))
    return float(
        (axis[after - 1] + (axis[after] - axis[after - 1]) * values[after - 1] / (values[after - 1] - values[after]))
        ** 2
    )


def test_a_circle_shrinks_by_its_curvature_until_the_interface_is_no_longer_thin():
    for time in (0.004, 0.015):
        assert radius_squared(extrapolated(disc(0.3), time, steps(time))) == pytest.approx(0.09 - 2 * time, abs=1.5e-4)
    # what is left is due to the width of the interface: it falls with ε²
    errors = [
        abs(radius_squared(extrapolated(disc(0.3, epsilon=e), 0.005, steps(0.005), epsilon=e)) - 0.08)
        for e in (0.04, 0.02)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.35)
    assert evolve(disc(0.1), 0.006, 200).max() < 0  # R² = 0.01 − 0.012: gone


def test_interpolation_is_exact_for_waves_and_meets_the_grid():
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 200)) - 0.5

    def wave(x, y):
        return 0.3 + np.cos(2 * np.pi * (3 * x - 5 * y) + 0.7) - np.sin(2 * np.pi * 7 * y)

    np.testing.assert_allclose(interpolate(wave(*grid(16)))(x, y), wave(x, y), atol=1e-12)
    values = rng.random((16, 16))
    gx, gy = grid(16)
    np.testing.assert_allclose(interpolate(values)(gx.ravel(), gy.ravel()), values.ravel(), atol=1e-12)


def test_the_interface_problem_is_the_papers():
    areas = []
    for time in TIMES:
        data = interface(time, seed=3)
        assert [len(part) for part in data] == [3000, 3000, 1000, 1000]
        assert torch.equal(data.X_train, interface(0.0, seed=3).X_train)
        for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
            assert X.abs().max() <= 0.5
            assert X.mean(0).abs().max() < 0.03
            assert torch.equal(y == 1, torch.from_numpy(solution(time)(*X.numpy().T)) >= 0)
        fine = (
            interpolate(extrapolated(initial_value(*grid(160)), time, 3 * steps(time) // 2)) if time else initial_value
        )
        assert torch.equal(data.y_test == 1, torch.from_numpy(fine(*data.X_test.numpy().T)) >= 0)
        areas.append(float(data.y_train.double().mean()))
    # One closed curve (the discs touch at t = 0 already) loses the area 2π t.
    assert areas[0] == pytest.approx(2 * math.pi * 0.19**2, abs=0.02)
    for time, area in zip(TIMES, areas, strict=True):
        assert area == pytest.approx(areas[0] - 2 * math.pi * time, abs=0.006)
    assert not torch.equal(interface(0.0, seed=3).X_train, interface(0.0, seed=4).X_train)


@pytest.mark.parametrize("time", [-0.001, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(time):
    with pytest.raises(ValueError, match="time="):
        interface(time)
