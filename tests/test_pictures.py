"""What is drawn is the data and the true boundary, read back from the picture's own elements."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lysep.problems import circle, interface
from lysep.problems.allen_cahn import TIMES, solution
from lysep.problems.pictures import LABEL_COLORS, draw_circle, draw_interface, draw_samples, draw_solution


@pytest.fixture
def axes():
    return Figure().subplots()


def points(collection):
    return np.asarray(collection.get_offsets())


def test_samples_are_drawn_by_label_and_mistakes_are_marked(axes):
    data = circle(test=200)
    wrong = torch.zeros(200, dtype=torch.bool)
    wrong[[3, 50]] = True
    draw_samples(axes, data.X_test, data.y_test, wrong)
    outside, inside, marked = axes.collections
    np.testing.assert_allclose(points(outside), data.X_test[data.y_test == 0])
    np.testing.assert_allclose(points(inside), data.X_test[data.y_test == 1])
    np.testing.assert_allclose(points(marked), data.X_test[[3, 50]])
    colors = [to_rgb(c.get_facecolor()[0][:3]) for c in (outside, inside, marked)]
    assert colors == [to_rgb(LABEL_COLORS[0]), to_rgb(LABEL_COLORS[1]), (0, 0, 0)]


def test_a_label_that_does_not_occur_and_no_mistakes_draw_nothing(axes):
    draw_samples(axes, torch.rand(5, 2), torch.ones(5).long(), torch.zeros(5).bool())
    assert [len(points(c)) for c in axes.collections] == [0, 5, 0]


def test_the_circle_is_drawn_where_labels_change(axes):
    draw_circle(axes)
    (line,) = axes.lines
    np.testing.assert_allclose(np.hypot(*line.get_data()), math.sqrt(2 / math.pi))
    assert (axes.get_xlim(), axes.get_ylim()) == ((-1, 1), (-1, 1))


@pytest.mark.parametrize("time", TIMES)
def test_the_interface_is_drawn_where_the_solution_is_zero(axes, time):
    draw_interface(axes, time)
    (contour,) = axes.collections
    (path,) = contour.get_paths()
    line = path.vertices
    assert len(line) > 100
    assert abs(solution(time)(*line.T)).max() < 0.05  # slope 35 there, cells of 1/120
    assert abs(line[:, 0]).max() < 0.25
    assert abs(line[:, 1]).max() > abs(line[:, 0]).max()  # two discs, one above the other: x and y are not mixed up


def test_solutions_are_drawn_with_their_sign_the_right_way_round(axes):
    draw_solution(axes, 0.001)
    mesh = axes.collections[0]
    values, coordinates = np.asarray(mesh.get_array()), mesh.get_coordinates()
    for place, sign in (((0, 0.2), 1), ((0, -0.2), 1), ((0.3, 0), -1), ((0, 0.45), -1)):
        nearest = np.hypot(*(coordinates - place).transpose(2, 0, 1)).argmin()
        assert values.ravel()[nearest] * sign > 0.9
    axes.figure.savefig("/dev/null", format="png")


def test_the_interface_lies_between_the_samples_of_either_label(axes):
    data = interface(0.004, test=300)
    draw_samples(axes, data.X_test, data.y_test)
    draw_interface(axes, 0.004)
    (path,) = axes.collections[2].get_paths()
    assert path.contains_points(points(axes.collections[1])).mean() > 0.98
    assert path.contains_points(points(axes.collections[0])).mean() < 0.02
