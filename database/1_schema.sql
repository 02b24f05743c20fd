-- Northwind's tables with the original's columns. Money is numeric, so that every value is exact.
-- A key may change: foreign keys follow. A row that others refer to cannot be deleted, with two exceptions: deleting an
-- order deletes its items, and deleting an employee or a territory deletes its assignments.

CREATE SCHEMA IF NOT EXISTS northwind;

CREATE TABLE IF NOT EXISTS northwind.region (
    region_id integer PRIMARY KEY,
    region_description varchar(50) NOT NULL
);

CREATE TABLE IF NOT EXISTS northwind.territories (
    territory_id varchar(20) PRIMARY KEY,
    territory_description varchar(50) NOT NULL,
    region_id integer NOT NULL REFERENCES northwind.region ON UPDATE CASCADE
);

CREATE TABLE IF NOT EXISTS northwind.employees (
    employee_id integer PRIMARY KEY,
    last_name varchar(20) NOT NULL,
    first_name varchar(10) NOT NULL,
    title varchar(30),
    title_of_courtesy varchar(25),
    birth_date date,
    hire_date date,
    address varchar(60),
    city varchar(15),
    region varchar(15),
    postal_code varchar(10),
    country varchar(15),
    home_phone varchar(24),
    extension varchar(4),
    photo bytea,
    notes text,
    reports_to integer REFERENCES northwind.employees ON UPDATE CASCADE,
    photo_path varchar(255)
);

CREATE TABLE IF NOT EXISTS northwind.employee_territories (
    employee_id integer REFERENCES northwind.employees ON UPDATE CASCADE ON DELETE CASCADE,
    territory_id varchar(20) REFERENCES northwind.territories ON UPDATE CASCADE ON DELETE CASCADE,
    PRIMARY KEY (employee_id, territory_id)
);

CREATE TABLE IF NOT EXISTS northwind.categories (
    category_id integer PRIMARY KEY,
    category_name varchar(15) NOT NULL,
    description text,
    picture bytea
);

CREATE TABLE IF NOT EXISTS northwind.suppliers (
    supplier_id integer PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    contact_name varchar(30),
    contact_title varchar(30),
    address varchar(60),
    city varchar(15),
    region varchar(15),
    postal_code varchar(10),
    country varchar(15),
    phone varchar(24),
    fax varchar(24),
    homepage text
);

CREATE TABLE IF NOT EXISTS northwind.products (
    product_id integer PRIMARY KEY,
    product_name varchar(40) NOT NULL,
    supplier_id integer REFERENCES northwind.suppliers ON UPDATE CASCADE,
    category_id integer REFERENCES northwind.categories ON UPDATE CASCADE,
    quantity_per_unit varchar(20),
    unit_price numeric(12,4),
    units_in_stock smallint,
    units_on_order smallint,
    reorder_level smallint,
    discontinued integer NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS northwind.customers (
    customer_id varchar(5) PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    contact_name varchar(30),
    contact_title varchar(30),
    address varchar(60),
    city varchar(15),
    region varchar(15),
    postal_code varchar(10),
    country varchar(15),
    phone varchar(24),
    fax varchar(24)
);

CREATE TABLE IF NOT EXISTS northwind.shippers (
    shipper_id integer PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    phone varchar(24)
);

CREATE TABLE IF NOT EXISTS northwind.orders (
    order_id integer PRIMARY KEY,
    customer_id varchar(5) REFERENCES northwind.customers ON UPDATE CASCADE,
    employee_id integer REFERENCES northwind.employees ON UPDATE CASCADE,
    order_date date,
    required_date date,
    shipped_date date,
    ship_via integer REFERENCES northwind.shippers ON UPDATE CASCADE,
    freight numeric(12,4),
    ship_name varchar(40),
    ship_address varchar(60),
    ship_city varchar(15),
    ship_region varchar(15),
    ship_postal_code varchar(10),
    ship_country varchar(15)
);

CREATE TABLE IF NOT EXISTS northwind.order_details (
    order_id integer REFERENCES northwind.orders ON UPDATE CASCADE ON DELETE CASCADE,
    product_id integer REFERENCES northwind.products ON UPDATE CASCADE,
    unit_price numeric(12,4) NOT NULL,
    quantity smallint NOT NULL,
    discount numeric(5,4) NOT NULL DEFAULT 0,
    PRIMARY KEY (order_id, product_id)
);

-- Indexes that lead from a parent to the orders that show it.
CREATE INDEX IF NOT EXISTS territories_region ON northwind.territories (region_id);

CREATE INDEX IF NOT EXISTS employee_territories_territory ON northwind.employee_territories (territory_id);

CREATE INDEX IF NOT EXISTS employees_reports_to ON northwind.employees (reports_to);

CREATE INDEX IF NOT EXISTS products_supplier ON northwind.products (supplier_id);

CREATE INDEX IF NOT EXISTS products_category ON northwind.products (category_id);

CREATE INDEX IF NOT EXISTS orders_customer ON northwind.orders (customer_id);

CREATE INDEX IF NOT EXISTS orders_employee ON northwind.orders (employee_id);

CREATE INDEX IF NOT EXISTS orders_shipper ON northwind.orders (ship_via);

CREATE INDEX IF NOT EXISTS order_details_product ON northwind.order_details (product_id);
