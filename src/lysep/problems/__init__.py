"""Classification problems with their exact specification, and networks to train on them."""

from lysep.problems.allen_cahn import interface
from lysep.problems.circle import circle
from lysep.problems.digits import digits
from lysep.problems.mnist import mnist
from lysep.problems.networks import cnn, fnn
from lysep.problems.split import Split

__all__ = ["Split", "circle", "cnn", "digits", "fnn", "interface", "mnist"]
