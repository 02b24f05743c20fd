-- northwind.order_events, recomputed from the base tables. On purpose not built as the outbox builds it: each document is
-- its table's row without the columns that do not belong in it, and lists are aggregated over whole tables.
WITH employee_territories AS (
    SELECT
        membership.employee_id,
        jsonb_agg(to_jsonb(territory) || to_jsonb(region) ORDER BY territory.territory_id COLLATE "C") AS territories
    FROM northwind.employee_territories AS membership
    INNER JOIN northwind.territories AS territory USING (territory_id)
    INNER JOIN northwind.region AS region ON region.region_id = territory.region_id
    GROUP BY membership.employee_id
),

products AS (
    SELECT
        product.product_id,
        to_jsonb(product) - '{supplier_id,category_id}'::text[]
        || jsonb_build_object('supplier', to_jsonb(supplier), 'category', to_jsonb(category) - 'picture') AS document
    FROM northwind.products AS product
    LEFT JOIN northwind.suppliers AS supplier ON supplier.supplier_id = product.supplier_id
    LEFT JOIN northwind.categories AS category ON category.category_id = product.category_id
),

items AS (
    SELECT
        item.order_id,
        jsonb_agg(
            to_jsonb(item) - 'order_id' || jsonb_build_object('product', products.document)
            ORDER BY item.product_id
        ) AS documents
    FROM northwind.order_details AS item
    INNER JOIN products USING (product_id)
    GROUP BY item.order_id
),

employees AS (
    SELECT
        employee.employee_id,
        to_jsonb(employee) - '{photo,notes}'::text[]
        || jsonb_build_object('territories', coalesce(employee_territories.territories, '[]')) AS document
    FROM northwind.employees AS employee
    LEFT JOIN employee_territories USING (employee_id)
),

rows AS (
    SELECT
        orders.*,
        to_jsonb(orders) AS document
    FROM northwind.orders AS orders
)

SELECT
    rows.order_id,
    coalesce(left(rows.document ->> 'order_date', 7), 'unknown') AS order_month,
    jsonb_build_object(
        'order',
        rows.document
        - '{order_id,ship_via,ship_name,ship_address,ship_city,ship_region,ship_postal_code,ship_country}'::text[],
        'shipment',
        rows.document
        - '{order_id,ship_via,customer_id,employee_id,order_date,required_date,shipped_date,freight}'::text[],
        'items', coalesce(items.documents, '[]'),
        'customer', to_jsonb(customer),
        'employee', employees.document,
        'shipper', to_jsonb(shipper)
    ) AS payload
FROM rows
LEFT JOIN items ON items.order_id = rows.order_id
LEFT JOIN northwind.customers AS customer ON customer.customer_id = rows.customer_id
LEFT JOIN employees ON employees.employee_id = rows.employee_id
LEFT JOIN northwind.shippers AS shipper ON shipper.shipper_id = rows.ship_via
