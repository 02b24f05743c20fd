"""The accounts: a DynamoDB table of customers with items of its own, made to be difficult.

Only ``id`` and ``custName``, the key, are in every item. Most items have what ``contracts/accounts.yaml`` names, in the
types named there, and besides free-form attributes of every type, with names that need quoting.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from rig.samples.items import FAR_FUTURE, WORDS, Item, Key, ValueMaker

TABLE = "headwater-accounts"
PARTITION_KEY = "id"
SORT_KEY = "custName"
TTL_ATTRIBUTE = "expires_at"


def generate(count: int, seed: int) -> Iterator[Item]:
    """Return items number 0 to ``count`` - 1. An item depends on its number and the seed alone."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - can be repeated, not secret
        yield AccountMaker(rng).item(key_of(number))


def key_of(number: int) -> Key:
    """Return the key of an item by its number: every fifth shares its partition key with the one before."""
    first = number - 1 if number % 5 == 4 else number
    name = f"{WORDS[number % len(WORDS)].capitalize()} {WORDS[number // 7 % len(WORDS)]} & Søn No. {number}"
    return {PARTITION_KEY: {"S": f"account-{first:08d}"}, SORT_KEY: {"S": name}}


class AccountMaker(ValueMaker):
    """Makes accounts by one source of random numbers."""

    def item(self, key: Key) -> Item:
        """Return an item: attributes that the contract names, now and then without one, and some free-form ones."""
        rng = self._rng
        named: dict[str, Callable[[], dict[str, Any]]] = {
            "email": lambda: {"S": f"{self.word()}.{rng.randrange(10**6)}@example.com"},
            "registrationDate": self.registration_date,
            "balance": lambda: {"N": self.decimal(29, 9)},
            "loyaltyPoints": lambda: {"N": str(rng.randrange(100_000))},
            "active": lambda: {"BOOL": rng.random() < 0.8},
            "lastLogin": lambda: {"S": self.moment()},
            "address": self._address,
            "devices": lambda: {"L": [self._device() for _ in range(rng.randrange(3))]},
            "tags": lambda: {"SS": sorted({self.word() for _ in range(rng.randint(1, 4))})},
            "limits": lambda: {"NS": sorted({self.decimal(14, 6) for _ in range(rng.randint(1, 3))})},
            "settings": lambda: {"M": {"locale": {"S": rng.choice(["de_DE", "pt_BR", "ja_JP"])}, "theme": self.any()}},
            "preferences": lambda: {"M": self.map(2)},
            "avatar": lambda: {"B": rng.randbytes(rng.randrange(40))},
            TTL_ATTRIBUTE: lambda: {"N": str(FAR_FUTURE + rng.randrange(10**6))},
        }
        item = dict(key)
        for name, make in named.items():
            chance = rng.random()
            if chance > 0.1:
                item[name] = make()
            elif chance > 0.07:
                item[name] = {"NULL": True}
        item |= self.free_form(rng.randint(1, 4))
        # A number of its own in each version of an item: no two are the same by chance.
        item["version"] = {"N": str(rng.randrange(10**12))}
        return item

    def registration_date(self) -> dict[str, Any]:
        """Return a day of some month."""
        return {"S": self.day()}

    def _address(self) -> dict[str, Any]:
        rng = self._rng
        address = {
            "street": {"S": f"{self.word()} {rng.randrange(200)}"},
            "city": {"S": self.word()},
            "postal_code": {"S": f"{rng.randrange(10**5):05d}"},
            "country": {"S": rng.choice(["NO", "PT", "JP"])},
        }
        if rng.random() < 0.3:  # what the contract's struct does not have
            address["c/o"] = self.any()
        if rng.random() < 0.2:
            del address["postal_code"]
        return {"M": address}

    def _device(self) -> dict[str, Any]:
        pushes = str(self._rng.randrange(1000))
        return {"M": {"kind": {"S": self.word()}, "since": {"S": self.day()}, "pushes": {"N": pushes}}}
