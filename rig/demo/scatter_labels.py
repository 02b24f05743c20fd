"""Where the labels of a scatter stand: at no width of the chart does one cover a dot or another label."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PLOT_HEIGHT = 440
"""Pixels of the part of a chart that holds the dots."""
PLOT_WIDTHS = (190, 1060)
"""From that on a phone to that of a chart as wide as its page."""
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
    """In pixels."""


@dataclass(frozen=True)
class _Box:
    """The rectangle that a dot or a label covers. Its middle lies beside a point of the plot; sizes are in pixels."""

    x: float
    """The point's share of the plot's width."""
    across: float
    """How far the middle lies right of the point."""
    up: float
    """How far the middle lies above the ground."""
    half_width: float
    half_height: float

    def meets(self, other: "_Box") -> bool:
        """Whether they overlap at any width. How far one is right of the other grows or shrinks with it evenly."""
        if abs(self.up - other.up) >= self.half_height + other.half_height:
            return False
        right = [(self.x - other.x) * width + self.across - other.across for width in PLOT_WIDTHS]
        near = self.half_width + other.half_width
        return min(right) < near and max(right) > -near

    def is_inside(self) -> bool:
        """Whether no part of it is cut off, at any width."""
        return self.half_height <= self.up <= PLOT_HEIGHT - self.half_height and all(
            self.half_width <= self.x * width + self.across <= width - self.half_width for width in PLOT_WIDTHS
        )


def label_offsets(dots: Sequence[Dot], labels: Sequence[str]) -> list[tuple[float, float] | None]:
    """How many pixels right of and above its dot the middle of each label is; None for a label that has no place.

    ``labels`` belong to the first of ``dots``, and the first ones choose first.
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
    """The places around a dot, the nearest first, from the one above it."""
    half_width, half_height = len(label) * _CHARACTER_WIDTH / 2, _LABEL_HEIGHT / 2
    for distance in _DISTANCES:
        for number in range(_DIRECTIONS):
            angle = 2 * math.pi * number / _DIRECTIONS
            across = math.sin(angle) * (half_width + dot.radius + distance)
            up = math.cos(angle) * (half_height + dot.radius + distance)
            yield _Box(dot.x, across, dot.y * PLOT_HEIGHT + up, half_width, half_height)
