-- The rights of the application on its tables. The deployment makes the roles, and lets headwater_reader read every table.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM PUBLIC;

GRANT USAGE ON SCHEMA northwind TO headwater_app;

-- The application writes the base tables only: the outbox is written by the triggers, with their owner's rights.
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON
    northwind.region, northwind.territories, northwind.employees, northwind.employee_territories,
    northwind.categories, northwind.suppliers, northwind.products, northwind.customers, northwind.shippers,
    northwind.orders, northwind.order_details
TO headwater_app;
