-- The outbox: northwind.order_events holds one row per order with everything that shows in it. The transaction that
-- changes any of it also writes the row.
--
-- This file has the outbox's table and what its rows are made of. 3_outbox_commit.sql writes the rows when a
-- transaction commits, and says why that is right. 4_outbox_triggers.sql notes which orders a statement touches.

CREATE SCHEMA IF NOT EXISTS outbox;

-- The month is in the primary key, so that Debezium tells of an order that leaves it without the whole row before each
-- change.
CREATE TABLE IF NOT EXISTS northwind.order_events (
    order_id integer UNIQUE,
    order_month text,
    payload jsonb NOT NULL,
    PRIMARY KEY (order_id, order_month)
);

-- The table of a release whose primary key had no month.
DO $$
BEGIN
    IF (SELECT indnatts FROM pg_index WHERE indrelid = 'northwind.order_events'::regclass AND indisprimary) = 1 THEN
        ALTER TABLE northwind.order_events
            DROP CONSTRAINT order_events_pkey, ADD UNIQUE (order_id), ADD PRIMARY KEY (order_id, order_month);
    END IF;
END
$$;

COMMENT ON COLUMN northwind.order_events.order_month IS 'YYYY-MM of order_date, unknown where there is none';

-- Every order as it is now. Payloads are built only here.
CREATE OR REPLACE VIEW outbox.current_orders AS
SELECT
    o.order_id,
    coalesce(to_char(o.order_date, 'YYYY-MM'), 'unknown') AS order_month,
    jsonb_build_object(
        'order', jsonb_build_object(
            'customer_id', o.customer_id,
            'employee_id', o.employee_id,
            'order_date', o.order_date,
            'required_date', o.required_date,
            'shipped_date', o.shipped_date,
            'freight', o.freight
        ),
        'items', items.documents,
        'customer', customer.document,
        'employee', employee.document,
        'shipper', shipper.document,
        'shipment', jsonb_build_object(
            'ship_name', o.ship_name,
            'ship_address', o.ship_address,
            'ship_city', o.ship_city,
            'ship_region', o.ship_region,
            'ship_postal_code', o.ship_postal_code,
            'ship_country', o.ship_country
        )
    ) AS payload
FROM northwind.orders AS o
CROSS JOIN LATERAL (
    SELECT coalesce(
        jsonb_agg(
            jsonb_build_object(
                'product_id', d.product_id,
                'unit_price', d.unit_price,
                'quantity', d.quantity,
                'discount', d.discount,
                'product', jsonb_build_object(
                    'product_id', p.product_id,
                    'product_name', p.product_name,
                    'quantity_per_unit', p.quantity_per_unit,
                    'unit_price', p.unit_price,
                    'units_in_stock', p.units_in_stock,
                    'units_on_order', p.units_on_order,
                    'reorder_level', p.reorder_level,
                    'discontinued', p.discontinued,
                    'supplier', CASE WHEN s.supplier_id IS NOT NULL THEN jsonb_build_object(
                        'supplier_id', s.supplier_id,
                        'company_name', s.company_name,
                        'contact_name', s.contact_name,
                        'contact_title', s.contact_title,
                        'address', s.address,
                        'city', s.city,
                        'region', s.region,
                        'postal_code', s.postal_code,
                        'country', s.country,
                        'phone', s.phone,
                        'fax', s.fax,
                        'homepage', s.homepage
                    ) END,
                    'category', CASE WHEN g.category_id IS NOT NULL THEN jsonb_build_object(
                        'category_id', g.category_id,
                        'category_name', g.category_name,
                        'description', g.description
                    ) END
                )
            )
            ORDER BY d.product_id
        ),
        '[]'::jsonb
    ) AS documents
    FROM northwind.order_details AS d
    JOIN northwind.products AS p ON p.product_id = d.product_id
    LEFT JOIN northwind.suppliers AS s ON s.supplier_id = p.supplier_id
    LEFT JOIN northwind.categories AS g ON g.category_id = p.category_id
    WHERE d.order_id = o.order_id
) AS items
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
        'customer_id', c.customer_id,
        'company_name', c.company_name,
        'contact_name', c.contact_name,
        'contact_title', c.contact_title,
        'address', c.address,
        'city', c.city,
        'region', c.region,
        'postal_code', c.postal_code,
        'country', c.country,
        'phone', c.phone,
        'fax', c.fax
    ) AS document
    FROM northwind.customers AS c
    WHERE c.customer_id = o.customer_id
) AS customer ON true
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
        'employee_id', e.employee_id,
        'last_name', e.last_name,
        'first_name', e.first_name,
        'title', e.title,
        'title_of_courtesy', e.title_of_courtesy,
        'birth_date', e.birth_date,
        'hire_date', e.hire_date,
        'address', e.address,
        'city', e.city,
        'region', e.region,
        'postal_code', e.postal_code,
        'country', e.country,
        'home_phone', e.home_phone,
        'extension', e.extension,
        'reports_to', e.reports_to,
        'photo_path', e.photo_path,
        'territories', coalesce(
            (
                SELECT jsonb_agg(
                    jsonb_build_object(
                        'territory_id', t.territory_id,
                        'territory_description', t.territory_description,
                        'region_id', r.region_id,
                        'region_description', r.region_description
                    )
                    ORDER BY t.territory_id COLLATE "C"
                )
                FROM northwind.employee_territories AS m
                JOIN northwind.territories AS t ON t.territory_id = m.territory_id
                JOIN northwind.region AS r ON r.region_id = t.region_id
                WHERE m.employee_id = e.employee_id
            ),
            '[]'::jsonb
        )
    ) AS document
    FROM northwind.employees AS e
    WHERE e.employee_id = o.employee_id
) AS employee ON true
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
        'shipper_id', h.shipper_id,
        'company_name', h.company_name,
        'phone', h.phone
    ) AS document
    FROM northwind.shippers AS h
    WHERE h.shipper_id = o.ship_via
) AS shipper ON true;
