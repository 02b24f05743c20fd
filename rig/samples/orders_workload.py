"""A live workload on the order database: every kind of change that the pipeline must follow, from several connections.

The transactions come from an application that knows nothing of the outbox. They take locks in any order, collide on a
few hot orders, change keys, and roll back. Some stay open while others commit. When PostgreSQL refuses a transaction
because another was faster, the workload tries again, as an application would.
"""

import random
import string
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql

from rig.samples.paced_workers import (
    ATTEMPTS,
    OnProgress,
    Share,
    Tally,
    Worker,
    WorkloadPlan,
    kinds_together,
    run_workers,
)

# The weight of each kind. The kinds in _WIDE change a row that many orders contain.
WEIGHTS: Mapping[str, float] = {
    "insert_order": 14,
    "insert_order_without_shipper": 3,
    "insert_order_without_date": 1,
    "update_order": 9,
    "clear_shipper": 2,
    "delete_order": 5,
    "insert_item": 8,
    "update_item": 10,
    "replace_item": 2,
    "delete_item": 6,
    "move_month": 6,
    "change_order_id": 4,
    "insert_customer": 2,
    "update_customer": 4,
    "change_customer_id": 2,
    "delete_customer": 1,
    "update_product": 3,
    "insert_product": 1,
    "savepoint": 5,
    "rollback": 4,
    "repeatable_read": 3,
    "long": 2,
    "update_employee": 1,
    "update_supplier": 1,
    "update_category": 0.5,
    "update_shipper": 0.5,
    "update_territory": 1,
    "assign_territory": 1,
    "unassign_territories": 0.5,
    "truncate_territories": 0.1,
    "truncate_items": 0,
    "truncate_orders": 0,
}
_WIDE = (
    "update_employee",
    "update_supplier",
    "update_category",
    "update_shipper",
    "update_territory",
    "assign_territory",
    "unassign_territories",
    "truncate_territories",
)
_OF_TABLES = ("truncate_territories", "truncate_items", "truncate_orders")
_MANY_ORDERS = 5_000  # with more, wide changes become rarer, so the number of their events hardly grows
_MAX_REWRITTEN_ORDERS = 20_000  # with more, no table is truncated and refilled: that would hold everybody up
_KNOWN_ORDERS = 20_000
_HOT_ORDERS = 8
# A transaction that locks a whole table may wait for rows of transactions that wait for the table. It gives up before
# PostgreSQL finds the deadlock, because PostgreSQL would end the other transactions, one per second.
_TABLE_WAIT = "300ms"

# Another transaction was faster: it locked first, or it changed or deleted a key that this one had chosen.
_COLLISIONS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
    psycopg.errors.ForeignKeyViolation,
)


@dataclass(frozen=True)
class OrdersSummary:
    """The result of a workload on the order database."""

    transactions: int
    """The committed transactions."""
    rolled_back: int
    """The transactions rolled back on purpose."""
    retries: int
    """The attempts that PostgreSQL refused in favour of another transaction."""
    seconds: float
    """The duration of the workload."""
    by_kind: dict[str, int] = field(default_factory=dict)
    """The number of transactions by their kind, committed or rolled back."""

    def counted(self) -> tuple[int, str]:
        """The number for a report, and its unit."""
        return self.transactions, "transactions"

    def remark(self) -> str:
        """The report's sentence about rolled back and repeated transactions."""
        return f"{self.rolled_back:,} rolled back on purpose, {self.retries:,} attempts repeated after a collision."


def one_after_another(summaries: Iterable[OrdersSummary]) -> OrdersSummary:
    """Sum up workloads that ran one after another."""
    listed = list(summaries)
    return OrdersSummary(
        transactions=sum(summary.transactions for summary in listed),
        rolled_back=sum(summary.rolled_back for summary in listed),
        retries=sum(summary.retries for summary in listed),
        seconds=sum(summary.seconds for summary in listed),
        by_kind=kinds_together(summary.by_kind for summary in listed),
    )


def choose_kinds(transactions: int, seed: int, orders: int) -> list[str]:
    """Return the kinds of a workload that commits ``transactions`` on a database of ``orders``, in a shuffled order.

    Every kind comes at least once if there are at least as many ``transactions`` as kinds. The same arguments give the
    same kinds.
    """
    rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
    # With more orders, the kinds that touch many of them become rarer. Too large tables are not rewritten.
    calm = min(1.0, _MANY_ORDERS / max(orders, 1))
    weights = {kind: weight * (calm if kind in _WIDE else 1) for kind, weight in WEIGHTS.items()}
    rewriting = ("truncate_items", "truncate_orders") if orders > _MAX_REWRITTEN_ORDERS else ()
    kinds = [kind for kind in weights if kind not in rewriting]
    rng.shuffle(kinds)
    # Each kind comes once. Then kinds are drawn until enough transactions commit.
    chosen = kinds[:transactions]
    missing = transactions - sum(kind != "rollback" for kind in chosen)
    while missing > 0:
        more = rng.choices(list(weights), list(weights.values()), k=missing)
        chosen += more
        missing -= sum(kind != "rollback" for kind in more)
    rng.shuffle(chosen)
    return chosen


def run(
    connect: Callable[[], psycopg.Connection],
    plan: WorkloadPlan,
    progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> OrdersSummary:
    """Run the workload on the order database; the plan's changes are transactions, its workers connections.

    ``connect`` opens a connection as a role that may change the base tables. The workload takes longer than planned if
    the database is too slow, and ends within about a second once ``stop`` is set. The plan's seed does not decide how
    the transactions collide. Raises the first error other than a collision.
    """
    with connect() as connection:
        state = _State.read(connection)
    kinds = choose_kinds(plan.changes, plan.seed, len(state.orders))
    tally = Tally()

    def make(share: Share) -> Worker:
        return _OrdersWorker(share, connect, state.for_worker(share.number, len(kinds)), tally)

    seconds = run_workers(plan, kinds, make, stop, lambda: tally.count("committed"), progress)
    return OrdersSummary(
        transactions=tally.count("committed"),
        rolled_back=tally.by_kind().get("rollback", 0),
        retries=tally.count("retries"),
        seconds=seconds,
        by_kind=tally.by_kind(),
    )


@dataclass
class _State:
    """The rows and ids that one connection knows."""

    orders: list[int]
    """The ids of some orders."""
    next_order: int
    """The next order id. No other connection uses it."""
    next_product: int
    """The next product id. No other connection uses it."""

    @staticmethod
    def read(connection: psycopg.Connection) -> "_State":
        orders = connection.execute(
            "SELECT order_id FROM northwind.orders ORDER BY order_id LIMIT %s", (_KNOWN_ORDERS + 1,)
        ).fetchall()
        highest = connection.execute(
            """SELECT coalesce((SELECT max(order_id) FROM northwind.orders), 0),
                      coalesce((SELECT max(product_id) FROM northwind.products), 0)"""
        ).fetchone()
        next_order, next_product = highest or (0, 0)
        return _State([order for (order,) in orders], next_order + 1, next_product + 1)

    def for_worker(self, number: int, transactions: int) -> "_State":
        # A transaction takes at most two ids, and each attempt takes new ones.
        block = 2 * transactions * ATTEMPTS // 10 + 1000
        return _State(list(self.orders), self.next_order + number * block, self.next_product + number * block)


def _collided(error: BaseException) -> bool:
    return isinstance(error, _COLLISIONS)


class _NothingThere(Exception):
    """The database has no row for this kind of change."""


class _OrdersWorker(Worker):
    """One connection and its share of the plan."""

    def __init__(self, share: Share, connect: Callable[[], psycopg.Connection], state: _State, tally: Tally) -> None:
        super().__init__(share)
        self._connect = connect
        self._rng = share.plan.random_numbers(share.number)
        self._state = state
        self._tally = tally
        self._stop = share.stop

    def work(self) -> None:
        with self._connect() as connection:
            self._connection = connection
            super().work()

    def perform(self, kind: str) -> None:
        try:
            done = self.patiently(self._tally, _collided)(self._attempt, kind)
            self._tally.add_kind(done)
            self._tally.add("committed", int(done != "rollback"))
        except _COLLISIONS:
            if self._stop.is_set():
                return
            if kind not in _OF_TABLES:
                raise
            # The other transactions never release all their rows.
            self.perform("insert_order")

    def _attempt(self, kind: str) -> str:
        """Run one transaction, and return its kind. If there was nothing to change, the kind became an insert."""
        try:
            with self._connection.transaction():
                getattr(self, f"_{kind}")()
        except _NothingThere:
            with self._connection.transaction():
                self._insert_order()
            return "insert_order"
        return kind

    # --- Orders ---

    def _insert_order(self, *, shipped: bool = True, dated: bool = True) -> int:
        rng = self._rng
        order = self._state.next_order
        self._state.next_order += 1
        placed = date(1996, 7, 1) + timedelta(days=rng.randrange(670)) if dated else None
        self._execute(
            """INSERT INTO northwind.orders (order_id, customer_id, employee_id, order_date, required_date, ship_via,
                   freight, ship_name, ship_city, ship_country)
               VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
            order,
            self._pick("customers", "customer_id") if rng.random() > 0.05 else None,
            self._pick("employees", "employee_id") if rng.random() > 0.05 else None,
            placed,
            placed + timedelta(days=28) if placed else None,
            self._pick("shippers", "shipper_id") if shipped else None,
            self._money(100),
            f"{self._word()} ‘{self._word()}’ & Søn",
            self._word(),
            rng.choice(["Norway", "Perú", "USA", None]),
        )
        for _ in range(rng.randint(1, 5)):
            self._put_item(order)
        self._state.orders.append(order)
        return order

    def _insert_order_without_shipper(self) -> None:
        self._insert_order(shipped=False)

    def _insert_order_without_date(self) -> None:
        self._insert_order(dated=False)

    def _update_order(self) -> None:
        self._execute(
            """UPDATE northwind.orders SET freight = %s, shipped_date = order_date + %s, ship_via = %s, ship_region = %s
               WHERE order_id = %s""",
            self._money(200),
            self._rng.randrange(30),
            self._pick("shippers", "shipper_id"),
            self._rng.choice([None, "", self._word()]),
            self._order(),
        )

    def _clear_shipper(self) -> None:
        self._execute("UPDATE northwind.orders SET ship_via = NULL WHERE order_id = %s", self._order())

    def _delete_order(self) -> None:
        order = self._order()
        if self._rng.random() < 0.5:  # otherwise the foreign key deletes them
            self._execute("DELETE FROM northwind.order_details WHERE order_id = %s", order)
        self._execute("DELETE FROM northwind.orders WHERE order_id = %s", order)

    def _move_month(self) -> None:
        moved = self._rng.choice([None, *(date(1997, month, 15) for month in range(1, 13))])
        self._execute("UPDATE northwind.orders SET order_date = %s WHERE order_id = %s", moved, self._order())

    def _change_order_id(self) -> None:
        old, new = self._order(), self._state.next_order
        self._state.next_order += 1
        self._execute("UPDATE northwind.orders SET order_id = %s WHERE order_id = %s", new, old)
        self._state.orders.append(new)

    # --- Items ---

    def _put_item(self, order: int) -> None:
        self._execute(
            """INSERT INTO northwind.order_details (order_id, product_id, unit_price, quantity, discount)
               VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING""",
            order,
            self._pick("products", "product_id"),
            self._money(80),
            self._rng.randint(1, 40),
            self._rng.choice([Decimal(0), Decimal("0.05"), Decimal("0.1500"), Decimal("0.3333")]),
        )

    def _insert_item(self) -> None:
        self._put_item(self._order())

    def _update_item(self) -> None:
        order, product = self._item()
        self._execute(
            """UPDATE northwind.order_details SET quantity = %s, unit_price = %s
               WHERE order_id = %s AND product_id = %s""",
            self._rng.randint(1, 40),
            self._money(80),
            order,
            product,
        )

    def _replace_item(self) -> None:
        order, product = self._item()
        self._execute("DELETE FROM northwind.order_details WHERE order_id = %s AND product_id = %s", order, product)
        self._put_item(order)

    def _delete_item(self) -> None:
        order, product = self._item()
        self._execute("DELETE FROM northwind.order_details WHERE order_id = %s AND product_id = %s", order, product)

    # --- What orders refer to ---

    def _insert_customer(self) -> None:
        self._execute(
            "INSERT INTO northwind.customers (customer_id, company_name, city) VALUES (%s, %s, %s)",
            self._customer_id(),
            f"{self._word()}, {self._word()}",
            self._rng.choice([None, "München", "'s-Hertogenb."]),
        )

    def _update_customer(self) -> None:
        self._execute(
            "UPDATE northwind.customers SET contact_name = %s, phone = %s WHERE customer_id = %s",
            self._word(),
            self._phone(),
            self._pick("customers", "customer_id"),
        )

    def _change_customer_id(self) -> None:
        self._execute(
            "UPDATE northwind.customers SET customer_id = %s WHERE customer_id = %s",
            self._customer_id(),
            self._pick("customers", "customer_id"),
        )

    def _delete_customer(self) -> None:
        unused = sql.SQL("NOT EXISTS (SELECT FROM northwind.orders AS o WHERE o.customer_id = chosen.customer_id)")
        self._execute(
            "DELETE FROM northwind.customers WHERE customer_id = %s", self._pick("customers", "customer_id", unused)
        )

    def _insert_product(self) -> None:
        product = self._state.next_product
        self._state.next_product += 1
        self._execute(
            """INSERT INTO northwind.products (product_id, product_name, supplier_id, category_id, unit_price)
               VALUES (%s, %s, %s, %s, %s)""",
            product,
            self._word(),
            self._pick("suppliers", "supplier_id"),
            self._pick("categories", "category_id") if self._rng.random() < 0.7 else None,
            self._money(90),
        )

    def _update_product(self) -> None:
        self._execute(
            """UPDATE northwind.products SET unit_price = %s, units_in_stock = %s, category_id = %s
               WHERE product_id = %s""",
            self._money(90),
            self._rng.choice([None, 0, self._rng.randrange(500)]),
            self._pick("categories", "category_id"),
            self._pick("products", "product_id"),
        )

    def _update_supplier(self) -> None:
        self._change("suppliers", "supplier_id", "phone", self._phone())

    def _update_category(self) -> None:
        self._change("categories", "category_id", "description", self._word())

    def _update_shipper(self) -> None:
        self._change("shippers", "shipper_id", "phone", self._phone())

    def _update_employee(self) -> None:
        self._change("employees", "employee_id", "title", self._word())

    def _update_territory(self) -> None:
        self._change("territories", "territory_id", "territory_description", self._word())

    def _assign_territory(self) -> None:
        self._execute(
            """INSERT INTO northwind.employee_territories (employee_id, territory_id) VALUES (%s, %s)
               ON CONFLICT DO NOTHING""",
            self._pick("employees", "employee_id"),
            self._pick("territories", "territory_id"),
        )

    def _unassign_territories(self) -> None:
        """Remove an employee's territories."""
        self._execute(
            "DELETE FROM northwind.employee_territories WHERE employee_id = %s", self._pick("employees", "employee_id")
        )

    # --- Whole tables ---

    def _truncate_territories(self) -> None:
        self._rewrite("employee_territories", keep=0.9)

    def _truncate_items(self) -> None:
        self._rewrite("order_details", keep=0.99)

    def _truncate_orders(self) -> None:
        self._rewrite("orders", "order_details", keep=0.99)

    def _rewrite(self, *tables: str, keep: float) -> None:
        """TRUNCATE tables that no other table refers to, and refill them with most of their rows."""
        names = [sql.Identifier("northwind", table) for table in tables]
        every = sql.SQL(", ").join(names)
        self._execute(sql.SQL("SET LOCAL lock_timeout = {}").format(_TABLE_WAIT))
        # Lock before reading the rows, so that none is added in between.
        self._execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(every))
        cursor = self._connection.cursor()
        held = [cursor.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall() for name in names]
        self._execute(sql.SQL("TRUNCATE {}").format(every))
        parents: set[Any] | None = None
        for name, rows in zip(names, held, strict=True):
            left = [row for row in rows if self._rng.random() < keep and (parents is None or row[0] in parents)]
            parents = {row[0] for row in left}
            with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
                for row in left:
                    copy.write_row(row)

    # --- Transactions of their own shape ---

    def _savepoint(self) -> None:
        """Roll back a part of a transaction, and keep the changes before and after it."""
        self._update_order()
        with self._connection.transaction():
            self._some_change()
            raise psycopg.Rollback
        self._insert_item()  # type: ignore[unreachable]  # the block above swallows its Rollback

    def _rollback(self) -> None:
        self._insert_order()
        self._some_change()
        self._state.orders.pop()
        raise psycopg.Rollback

    def _repeatable_read(self) -> None:
        self._execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._update_order()
        self._insert_item()

    def _long(self) -> None:
        """Stay open while others commit, then change rows that they may have changed."""
        self._update_item()
        self._stop.wait(self._rng.uniform(0.2, 0.8))
        self._some_change()
        self._stop.wait(self._rng.uniform(0.1, 0.4))
        self._insert_item()

    def _some_change(self) -> None:
        self._rng.choice(
            [self._update_item, self._update_order, self._insert_item, self._update_product, self._update_customer]
        )()

    # --- Choosing ---

    def _execute(self, statement: str | sql.Composed, *values: object) -> None:
        self._connection.execute(statement.encode() if isinstance(statement, str) else statement, values or None)

    def _change(self, table: str, key: str, column: str, value: str) -> None:
        statement = sql.SQL("UPDATE {} SET {} = %s WHERE {} = %s").format(
            sql.Identifier("northwind", table), sql.Identifier(column), sql.Identifier(key)
        )
        self._execute(statement, value, self._pick(table, key))

    def _pick(self, table: str, key: str, condition: sql.SQL | None = None) -> Any:
        """The key of a random row. Raises _NothingThere."""
        statement = sql.SQL(
            """WITH chosen AS (SELECT {key} FROM {table} AS chosen WHERE {condition})
               SELECT {key} FROM chosen ORDER BY {key} LIMIT 1
               OFFSET floor(%s * (SELECT count(*) FROM chosen))::bigint"""
        ).format(
            key=sql.Identifier(key),
            table=sql.Identifier("northwind", table),
            condition=condition or sql.SQL("true"),
        )
        row = self._connection.execute(statement, (self._rng.random(),)).fetchone()
        if row is None:
            raise _NothingThere
        return row[0]

    def _order(self) -> int:
        """An existing order, at times one of the hot orders that all connections change. Raises _NothingThere."""
        for _ in range(8):
            known = self._state.orders
            if not known:
                break
            order = self._rng.choice(known[:_HOT_ORDERS] if self._rng.random() < 0.2 else known)
            existing = self._connection.execute("SELECT FROM northwind.orders WHERE order_id = %s", (order,))
            if existing.rowcount == 1:
                return order
        raise _NothingThere

    def _item(self) -> tuple[int, int]:
        """An order's id and the product of one of its items. Raises _NothingThere."""
        for _ in range(4):
            order = self._order()
            products = self._connection.execute(
                "SELECT product_id FROM northwind.order_details WHERE order_id = %s ORDER BY product_id", (order,)
            ).fetchall()
            if products:
                return order, self._rng.choice(products)[0]
        raise _NothingThere

    def _money(self, limit: int) -> Decimal:
        return Decimal(self._rng.randrange(limit * 10_000)).scaleb(-4)

    def _phone(self) -> str:
        return f"+{self._rng.randrange(10**11)}"

    def _customer_id(self) -> str:
        return "".join(self._rng.choices(string.ascii_uppercase, k=5))

    def _word(self) -> str:
        return "".join(self._rng.choices(string.ascii_lowercase + "äøé", k=self._rng.randint(3, 12))).capitalize()
