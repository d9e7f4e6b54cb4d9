"""Links: the linear maps of a network, each with the fixed linear operators in front of it."""

from lysep.links.base import Link
from lysep.links.conv import ConvLink
from lysep.links.dense import DenseLink
from lysep.links.fixed import FixedMap, Pool

__all__ = ["ConvLink", "DenseLink", "FixedMap", "Link", "Pool"]
