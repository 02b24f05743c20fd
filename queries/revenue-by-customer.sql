-- Revenue by customer, the largest first: quantity × unit price × (1 − discount).
SELECT
  customer.customer_id AS customer_id,
  max(customer.company_name) AS company_name,
  count(DISTINCT order_id) AS orders,
  CAST(sum(items[position].quantity * items[position].unit_price * (1 - items[position].discount)) AS double) AS revenue,
  avg(CAST(items[position].quantity * items[position].unit_price * (1 - items[position].discount) AS double)) AS average_item_revenue,
  avg(CAST(items[position].quantity AS double)) AS average_quantity
FROM ${view.orders}
CROSS JOIN UNNEST(filter(sequence(1, cardinality(items)), position -> position BETWEEN 1 AND cardinality(items))) AS item (position)
WHERE customer.customer_id IS NOT NULL
GROUP BY customer.customer_id
ORDER BY revenue DESC;
