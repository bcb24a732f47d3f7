-- The demo's source: a small delivery business. Defect reports trickle in days after the delivery.
CREATE TABLE associates (
    id      integer PRIMARY KEY,
    name    text NOT NULL,
    station text NOT NULL
);
CREATE TABLE routes (
    id      integer PRIMARY KEY,
    name    text NOT NULL,
    station text NOT NULL
);
CREATE TABLE packages (
    id          bigint PRIMARY KEY,
    route_id    integer NOT NULL REFERENCES routes,
    weight_kg   numeric(8,3) NOT NULL,
    promised_at timestamptz NOT NULL,
    label       text                       -- a scanned label of several kilobytes, stored out of line
);
CREATE TABLE deliveries (
    package_id   bigint PRIMARY KEY REFERENCES packages ON UPDATE CASCADE,
    associate_id integer NOT NULL REFERENCES associates,
    delivered_at timestamptz NOT NULL,
    status       text NOT NULL
);
CREATE TABLE defect_reports (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    package_id  bigint NOT NULL REFERENCES packages ON UPDATE CASCADE,
    kind        text NOT NULL,
    reported_at timestamptz NOT NULL
);

INSERT INTO associates
SELECT g, (ARRAY['Ada','Ben','Cleo','Dan','Eva','Finn','Gia','Hugo'])[g], (ARRAY['North','South'])[1 + g % 2]
FROM generate_series(1, 8) g;
INSERT INTO routes
SELECT g, 'Route ' || g, (ARRAY['North','South'])[1 + g % 2] FROM generate_series(1, 6) g;
INSERT INTO packages
SELECT g, 1 + g % 6, 0.250 + (g % 400) / 10.0, '2026-11-01 12:00Z'::timestamptz + (g % 7) * interval '1 day',
       (SELECT string_agg(md5(g::text || i::text), '') FROM generate_series(1, 300) i)
FROM generate_series(1, 2000) g;
INSERT INTO deliveries
SELECT id, 1 + id % 8, promised_at + ((id % 13) - 10) * interval '20 minutes', 'delivered'
FROM packages WHERE id <= 1500;
INSERT INTO defect_reports (package_id, kind, reported_at)
SELECT package_id, (ARRAY['damaged','wrong address','missing item'])[1 + package_id % 3], delivered_at + interval '1 day'
FROM deliveries WHERE package_id % 29 = 0;

CREATE PUBLICATION embrasure_flow FOR TABLE associates, routes, packages, deliveries, defect_reports;
