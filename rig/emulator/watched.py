"""Records which properties of a resource a handler reads.

Both the emulator and Headwater's handlers import this module, so it needs only Python's standard library.
"""

from collections.abc import Iterator, Mapping
from typing import Any


class Watched(dict[str, Any]):
    """The properties of a resource, and the names that a handler has read. A loop over all properties reads each."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.seen.update(super().keys())
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property, and record it as read."""
        self.seen.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove and return a property, and record it as read."""
        self.seen.add(name)
        return super().pop(name, *default)

    def keys(self) -> Any:
        """Return all names, and record all properties as read."""
        self.seen.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        """Return all properties, and record them as read."""
        self.seen.update(super().keys())
        return super().items()
