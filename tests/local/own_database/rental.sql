-- A shop that lends films: a schema that nobody made for Headwater.
CREATE TYPE rating AS ENUM ('G', 'PG', 'R');
CREATE DOMAIN year AS integer CHECK (VALUE BETWEEN 1901 AND 2155);
CREATE TABLE language (language_id smallint PRIMARY KEY, name character(20) NOT NULL);
CREATE TABLE film (
    film_id serial PRIMARY KEY,
    title varchar(255) NOT NULL,
    description text,
    release_year year,
    language_id smallint NOT NULL REFERENCES language,
    rental_rate numeric(4,2) NOT NULL DEFAULT 4.99,
    length smallint,
    rating rating DEFAULT 'G',
    special_features text[],
    fulltext tsvector,
    extras jsonb,
    title_upper text GENERATED ALWAYS AS (upper(title)) STORED,
    last_update timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE film IS 'Films that can be lent: a row a title.';
COMMENT ON COLUMN film.rental_rate IS 'What a rental costs, in dollars';
CREATE TABLE actor (actor_id serial PRIMARY KEY, "firstName" text NOT NULL, "lastName" text NOT NULL);
CREATE TABLE film_actor (
    actor_id integer REFERENCES actor, film_id integer REFERENCES film ON DELETE CASCADE, PRIMARY KEY (actor_id, film_id)
);
CREATE TABLE country (code text NOT NULL UNIQUE, name text NOT NULL, area numeric);
ALTER TABLE country REPLICA IDENTITY NOTHING;
CREATE TABLE staff (staff_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), email text, picture bytea, active boolean DEFAULT true);
CREATE TABLE rental (
    rental_id bigserial PRIMARY KEY, film_id integer NOT NULL REFERENCES film ON DELETE CASCADE,
    rented timestamp NOT NULL, returned timestamp, during tsrange
);
CREATE TABLE payment (
    payment_id bigint NOT NULL, payment_date timestamptz NOT NULL, rental_id bigint, amount numeric(5,2) NOT NULL,
    PRIMARY KEY (payment_date, payment_id)
) PARTITION BY RANGE (payment_date);
CREATE TABLE payment_2024_01 PARTITION OF payment FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE payment_later PARTITION OF payment DEFAULT;
CREATE TABLE audit (happened timestamptz, what text);
CREATE TABLE "Legacy" (id integer PRIMARY KEY);
CREATE VIEW film_list AS SELECT title, rental_rate FROM film;

INSERT INTO language VALUES (1, 'English'), (2, 'Français');
INSERT INTO film (title, description, release_year, language_id, length, rating, special_features, extras)
SELECT 'Film ' || n, repeat('long ', n % 900), 1950 + n % 70, 1 + n % 2, n % 200, (ARRAY['G', 'PG', 'R']::rating[])[1 + n % 3],
    CASE WHEN n % 5 > 0 THEN ARRAY['Trailers', 'Commentary ' || n] END, jsonb_build_object('n', n)
FROM generate_series(1, 1000) AS n;
UPDATE film SET fulltext = to_tsvector(title);
INSERT INTO actor ("firstName", "lastName") SELECT 'First ' || n, 'Last ' || n FROM generate_series(1, 200) AS n;
INSERT INTO film_actor SELECT 1 + n % 200, n FROM generate_series(1, 1000) AS n;
INSERT INTO country VALUES ('DE', 'Germany', 357022.5), ('VA', 'Vatican', 0.44), ('XX', 'Nowhere', 'NaN');
INSERT INTO staff (email, picture) VALUES ('a@example.com', '\xdeadbeef'), ('b@example.com', NULL);
INSERT INTO rental (film_id, rented, returned, during)
SELECT 1 + n % 1000, t, t + interval '3 days', tsrange(t, t + interval '3 days')
FROM (SELECT n, timestamp '2024-01-01' + n * interval '7 minutes' AS t FROM generate_series(1, 16000) AS n) AS times;
INSERT INTO payment SELECT rental_id, rented AT TIME ZONE 'UTC', rental_id, 0.99 + rental_id % 9 FROM rental;
INSERT INTO audit VALUES (now(), 'made');
ANALYZE;
