"""The positions of a scatter plot's labels: at no width of the chart does a label cover a dot or another label."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PLOT_HEIGHT = 440
"""The height in pixels of the part of a chart that holds the dots."""
PLOT_WIDTHS = (190, 1060)
"""The smallest width of that part, on a phone, and the largest, in a chart as wide as its page."""
_CHARACTER_WIDTH, _LABEL_HEIGHT = 9, 16
_DISTANCES = range(4, 200, 6)
_DIRECTIONS = 24


@dataclass(frozen=True)
class Dot:
    """A dot of the plot."""

    x: float
    """A share of the plot's width, from the left."""
    y: float
    """A share of the plot's height, from the bottom."""
    radius: float
    """The radius in pixels."""


@dataclass(frozen=True)
class _Box:
    """The rectangle that a dot or a label covers. Its middle lies beside a point of the plot; sizes are in pixels."""

    x: float
    """The point's share of the plot's width."""
    across: float
    """The distance of the middle to the right of the point."""
    up: float
    """The height of the middle above the bottom of the plot."""
    half_width: float
    """Half of the rectangle's width."""
    half_height: float
    """Half of the rectangle's height."""

    def meets(self, other: "_Box") -> bool:
        """Whether two rectangles overlap at any width.

        Their horizontal distance changes linearly with the width, so both ends of the range decide.
        """
        if abs(self.up - other.up) >= self.half_height + other.half_height:
            return False
        right = [(self.x - other.x) * width + self.across - other.across for width in PLOT_WIDTHS]
        near = self.half_width + other.half_width
        return min(right) < near and max(right) > -near

    def is_inside(self) -> bool:
        """Whether the rectangle lies within the chart at every width."""
        return self.half_height <= self.up <= PLOT_HEIGHT - self.half_height and all(
            self.half_width <= self.x * width + self.across <= width - self.half_width for width in PLOT_WIDTHS
        )


def label_offsets(dots: Sequence[Dot], labels: Sequence[str]) -> list[tuple[float, float] | None]:
    """The positions of the labels' middles, in pixels right of and above their dots; None for a label without a place.

    ``labels`` belong to the first of ``dots``, and earlier labels choose first.
    """
    taken = [_Box(dot.x, 0, dot.y * PLOT_HEIGHT, dot.radius, dot.radius) for dot in dots]
    offsets: list[tuple[float, float] | None] = []
    for dot, label in zip(dots, labels, strict=False):
        for box in _places(dot, label):
            if box.is_inside() and not any(box.meets(other) for other in taken):
                taken.append(box)
                offsets.append((box.across, box.up - dot.y * PLOT_HEIGHT))
                break
        else:
            offsets.append(None)
    return offsets


def _places(dot: Dot, label: str) -> Iterator[_Box]:
    """The candidate positions around a dot: the nearest first, beginning above the dot."""
    half_width, half_height = len(label) * _CHARACTER_WIDTH / 2, _LABEL_HEIGHT / 2
    for distance in _DISTANCES:
        for number in range(_DIRECTIONS):
            angle = 2 * math.pi * number / _DIRECTIONS
            across = math.sin(angle) * (half_width + dot.radius + distance)
            up = math.cos(angle) * (half_height + dot.radius + distance)
            yield _Box(dot.x, across, dot.y * PLOT_HEIGHT + up, half_width, half_height)
