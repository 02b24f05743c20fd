-- A row for each item of each order, with its revenue: quantity × unit price × (1 − discount).
SELECT
  order_id,
  order_date,
  customer.customer_id AS customer_id,
  items[position].product_id AS product_id,
  items[position].quantity AS quantity,
  items[position].unit_price AS unit_price,
  items[position].discount AS discount,
  items[position].quantity * items[position].unit_price * (1 - items[position].discount) AS revenue
FROM ${view.orders}
CROSS JOIN UNNEST(filter(sequence(1, cardinality(items)), position -> position BETWEEN 1 AND cardinality(items))) AS item (position);
