-- Revenue by customer and month of the order, the newest month first.
SELECT
  date_trunc('month', order_date) AS month,
  customer.customer_id AS customer_id,
  CAST(sum(items[position].quantity * items[position].unit_price * (1 - items[position].discount)) AS double) AS revenue
FROM ${view.orders}
CROSS JOIN UNNEST(filter(sequence(1, cardinality(items)), position -> position BETWEEN 1 AND cardinality(items))) AS item (position)
WHERE customer.customer_id IS NOT NULL
GROUP BY date_trunc('month', order_date), customer.customer_id
ORDER BY month DESC, revenue DESC;
