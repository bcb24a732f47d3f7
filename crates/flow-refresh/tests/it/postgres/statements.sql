-- Expressions
SELECT id, n + k AS a, n - k AS b, n * k AS c, n / 7 AS d, n % 7 AS e, -n AS f, abs(n) AS g FROM bronze.f
SELECT id, d + 1 AS a, d - d AS b, d * 2 AS c, d / 3 AS e, d * d AS f, -d AS g, abs(d) AS h FROM bronze.f
SELECT id, d * 1.1 AS a, d + 0.005 AS b, n * 1.5 AS c, n + 0.5 AS e FROM bronze.f
SELECT id, x + r AS a, x * 2 AS b, x / 3 AS c, x - d AS e, sqrt(abs(x)) AS f, floor(x) AS g, ceil(x) AS h FROM bronze.f
SELECT x::int AS a, r::bigint AS b, d::int AS c, d::numeric(10,1) AS e, d::numeric(14,4) AS f, n::double precision AS g, d::double precision AS h FROM bronze.f
SELECT d / n AS a, n / d AS b FROM bronze.f WHERE n <> 0 AND d <> 0
SELECT n::text AS a, s::text AS b, k::text || '-' || s AS c, b::text AS e, day::text AS f, u::text AS g FROM bronze.f
SELECT t::date AS a, z::date AS b, day::timestamp AS c, date_trunc('hour', t) AS e, date_trunc('month', z) AS f, t::time AS g FROM bronze.f
SELECT extract(year FROM t)::int AS a, extract(month FROM day)::int AS b, extract(dow FROM t)::int AS c, extract(hour FROM z)::int AS e FROM bronze.f
SELECT t + INTERVAL '1 day' AS a, z - INTERVAL '2 hours' AS b, day + INTERVAL '1 month' AS c FROM bronze.f
SELECT upper(s) AS a, length(s) AS b, substr(s, 2, 2) AS c, trim(s) AS e, replace(s, 'b', 'c') AS f, left(s, 1) AS g, s || 'x' AS h, coalesce(s, 'none') AS i FROM bronze.f
SELECT CASE WHEN k > 0 THEN 'p' WHEN k < 0 THEN 'm' ELSE s END AS a, CASE k WHEN 1 THEN n WHEN 2 THEN -n END AS b, nullif(k, 1) AS c, greatest(k, n) AS e FROM bronze.f
SELECT CASE WHEN n <> 0 THEN 100 / n END AS a FROM bronze.f
SELECT id, 2147483647 + k::bigint AS a, 7 / 2 AS b, -7 / 2 AS c, -7 % 3 AS e, 7.0 / 2 AS f, 2 * 3.5 AS g FROM bronze.f
SELECT round(d, 1) AS a, trunc(x) AS b FROM bronze.f
SELECT coalesce(x, 0.5) AS a, CASE WHEN b THEN x ELSE 1.5 END AS b, greatest(x, 0.25) AS c FROM bronze.f
SELECT id FROM bronze.f WHERE x = 0.5 OR x > 1.25 OR d = x
-- Numbers
SELECT ceil(d) AS a, floor(d) AS b, ceil(x) AS c, floor(r) AS e, abs(x) AS f, abs(d) AS g, abs(k) AS h, trunc(x) AS i FROM bronze.f
SELECT round(d) AS a, round(d, 0) AS b, round(d, 1) AS c, round(d, 5) AS e, round(d, -2) AS f FROM bronze.f
SELECT round(x) AS a, round(x * 5) AS b, round(r * 4) AS c, round(-2.5::double precision) AS e, sqrt(x * x) AS f FROM bronze.f
SELECT d % 3 AS a, d % 1.75 AS b, n % 7 AS c, k & g AS e, k | g AS f FROM bronze.f
SELECT nullif(x, 0.0) AS a, nullif(d, 0) AS b, greatest(x, r) AS c, least(x, 0.5, r) AS e, least(k, n) AS f, greatest(s, 'b') AS g FROM bronze.f
SELECT CASE x WHEN 0 THEN 'zero' WHEN 0.5 THEN 'half' ELSE 'other' END AS a, CASE x * -0.0 WHEN 0.0 THEN 1 END AS b, nullif(x * -0.0, 0.0) AS c FROM bronze.f
SELECT x::numeric(10,2) AS a, (x * 1.075)::numeric(8,2) AS b, r::numeric(10,3) AS c, (x / 3)::numeric(38,20) AS e, (r / 3)::numeric(20,10) AS f, (x * 1e14)::numeric(38,2) AS g FROM bronze.f
SELECT 2.675::double precision::numeric(10,2) AS a, 1.005::double precision::numeric(10,2) AS b, 0.1::real::numeric(20,10) AS c, 1e-7::double precision::numeric(20,10) AS e
SELECT d::double precision AS a, 12345678901234567890.12345::numeric(30,5)::double precision AS b, d::real AS c, x::real AS e FROM bronze.f
SELECT id FROM bronze.f WHERE x::numeric(8,2) > 1.005 OR d::int = 3
SELECT b::int AS a, k::boolean AS c, k::text::int AS e, d::text AS f, d::text::numeric(12,2) AS g FROM bronze.f
SELECT r + 1 AS a, r * k AS b, r / 3 AS c, r - 0.1 AS e, r + r AS f, r * x AS g FROM bronze.f
SELECT id FROM bronze.f WHERE r > 1 OR r = 0.1 OR r IN (0.5, 1) OR r BETWEEN 2 AND n
-- Quotients
SELECT d / n AS a, d / 3.7 AS b, d / (n * 1000000) AS c, n / d AS e, 1 / d AS f, d / 0.00003 AS g FROM bronze.f WHERE n <> 0 AND d <> 0
SELECT (d / 3)::numeric(20,10) AS a, (d / n)::numeric(38,22) AS b, (n / 3.0)::numeric(20,1) AS c, (d / n)::int AS e, (1 / (n * 1000001.0))::numeric(38,30) AS f FROM bronze.f WHERE n <> 0
SELECT round(d / n, 2) AS a, CAST(d / n AS numeric(10,2)) * 100 AS b, round(100.0 * k / n, 1) AS c, coalesce(round(d / n, 0), -1) AS e FROM bronze.f WHERE n <> 0
SELECT round(n / 2.0, 0) AS a, (n / 2.0)::int AS b, (n / 8.0)::numeric(10,2) AS c FROM bronze.f
SELECT coalesce(d / nullif(n, 0), 0) AS a, CASE WHEN n <> 0 THEN d / n END AS b FROM bronze.f
SELECT k, CAST(CAST(sum(n) AS numeric(38,0)) / count(n) AS numeric(20,2)) AS a, round(sum(d) / nullif(count(*), 0), 2) AS b, CAST(sum(n) AS bigint) / 7 AS c FROM bronze.f GROUP BY k
SELECT k, sum(k) / 3 AS a, count(*) / 2 AS b, sum(n) % 7 AS c, sum(n) * 2 - 1 AS e, sum(n) / 2.5 AS f FROM bronze.f GROUP BY k
SELECT q.a, q.b FROM (SELECT avg(n) AS a, avg(d) AS b FROM bronze.f) q UNION ALL SELECT avg(k), avg(d) FROM bronze.f WHERE b
-- Texts
SELECT upper(s) AS a, lower(s) AS b, length(s) AS c, char_length(s) AS e, octet_length(s) AS f, bit_length(s) AS g, ascii(s) AS h, reverse(s) AS i, md5(s) AS j FROM bronze.f
SELECT upper(s || 'straße éǆ ΐᾀς') AS a, lower('İ ẞ ΑΣ' || upper(s)) AS b FROM bronze.f
SELECT left(s, 2) AS a, left(s, -1) AS b, right(s, 2) AS c, right(s, -2) AS e, left(s, 0) AS f, right(s, k) AS g FROM bronze.f
SELECT substr(s, 0, 2) AS a, substr(s, -1, 3) AS b, substr(s, 2) AS c, substring(s FROM 2 FOR 2) AS e, substring(s, 3) AS f, substring(s FROM 2) AS g FROM bronze.f
SELECT lpad(s, 5) AS a, lpad(s, 5, 'xy') AS b, rpad(s, 2, 'xy') AS c, rpad(s, -1) AS e, rpad(s, 6, '') AS f, rpad(s, 9) AS g FROM bronze.f
SELECT trim(s) AS a, ltrim(s, 'ab') AS b, rtrim(s, 'bc') AS c, btrim(s, 'a%') AS e, trim(BOTH 'b' FROM s) AS f, trim(LEADING 'a' FROM s) AS g, rtrim(s || '  ') AS h, ltrim('  ' || s) AS i FROM bronze.f
SELECT replace(s, 'b', '') AS a, split_part(s, '_', 1) AS b, split_part(s, '_', -1) AS c, split_part(s, 'b', 2) AS e, split_part(s, 'zz', 2) AS f, translate(s, 'abü', 'xy') AS g, repeat(s, 2) AS h, repeat(s, -1) AS i FROM bronze.f
SELECT position('b' IN s) AS a, strpos(s, '') AS b, strpos(s, 'rich') AS c, starts_with(s, 'a') AS e, starts_with(s, '') AS f FROM bronze.f
SELECT concat(s, k, d, day, NULL) AS a, concat_ws('-', s, 'x', NULL, k) AS b, s || k AS c, b || s AS e, d || '' AS f, u::text || s AS g FROM bronze.f
SELECT t::text AS a, z::text AS b, day::text AS c, t::time::text AS e, s || t AS f, z || s AS g, day || '' AS h, TIMESTAMP '2024-01-01 00:00:00' || s AS i FROM bronze.f
SELECT id FROM bronze.f WHERE s ILIKE 'Z%' OR s ILIKE '%Ü%' OR s NOT ILIKE 'AB%' OR s LIKE '_b_'
SELECT '12.345'::numeric(10,2) AS a, '-2.5'::numeric(5,0) AS b, '1e3'::double precision AS c, '2024-02-29'::date AS e, 't'::boolean AS f, 'off'::boolean AS g, '10:30:00'::time AS h, '7'::bigint AS i
SELECT '2024-02-29 10:00:00.123456'::timestamp AS a, '2024-02-29 10:00:00+02'::timestamptz AS b, '2024-02-29'::timestamptz AS c, '2024-02-29T10:00:00Z'::timestamptz AS e
-- Times
SELECT extract(year FROM t) AS a, extract(quarter FROM day) AS b, extract(month FROM z) AS c, extract(week FROM day) AS e, extract(day FROM t) AS f, extract(hour FROM z) AS g, extract(minute FROM t) AS h, extract(dow FROM day) AS i, extract(doy FROM t) AS j FROM bronze.f
SELECT extract(epoch FROM t) AS a, extract(epoch FROM z) AS b, extract(epoch FROM day) AS c, extract(epoch FROM t - TIMESTAMP '2023-11-20 00:00:00') AS e, extract(epoch FROM z - TIMESTAMPTZ '2023-11-20 00:00:00+00')::bigint AS f FROM bronze.f
SELECT (extract(epoch FROM t) / 3600)::numeric(20,4) AS a FROM bronze.f
SELECT date_trunc('second', t) AS a, date_trunc('minute', z) AS b, date_trunc('day', t) AS c, date_trunc('week', z) AS e, date_trunc('quarter', t) AS f, date_trunc('year', z) AS g, date_trunc('month', day) AS h FROM bronze.f
SELECT day - DATE '2022-03-01' AS a, (day - DATE '2022-03-01') / 7 AS b, date_trunc('week', day)::date AS c FROM bronze.f
SELECT id FROM bronze.f WHERE day - DATE '2022-03-01' > 100 OR t > TIMESTAMP '2023-11-20 00:00:00' + INTERVAL '2 days'
-- Literals take the type of what they meet
SELECT id FROM bronze.f WHERE n < '10' AND k IN ('1', '2') AND d BETWEEN '1.005' AND '150.5'
SELECT id FROM bronze.f WHERE x > '0.5' OR '3' = k OR n <> '-7' AND b = 'true'
SELECT id FROM bronze.f WHERE day >= '2022-03-01' AND t > '2023-12-01' OR z < '2024-01-01 00:00:00+00' OR u = 'a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1'
SELECT coalesce(n, '5') AS a, CASE k WHEN '1' THEN 'one' END AS c, CASE WHEN b THEN n ELSE '7' END AS e, nullif(k, '1') AS f FROM bronze.f
SELECT d FROM bronze.f UNION ALL SELECT x FROM bronze.f
-- Conditions
SELECT id FROM bronze.f WHERE k > 1 OR n < 0
SELECT id FROM bronze.f WHERE NOT (k = 1 AND g = 2)
SELECT id FROM bronze.f WHERE k IS DISTINCT FROM g
SELECT id FROM bronze.f WHERE k IS NOT DISTINCT FROM g
SELECT id FROM bronze.f WHERE k BETWEEN -1 AND 2 AND x BETWEEN 0 AND 1.5
SELECT id FROM bronze.f WHERE k IN (1, 2, NULL)
SELECT id FROM bronze.f WHERE k NOT IN (1, 2)
SELECT id FROM bronze.f WHERE k NOT IN (1, NULL)
SELECT id FROM bronze.f WHERE x IN (0, 0.5) OR x NOT IN (1, 2)
SELECT id FROM bronze.f WHERE s LIKE 'a%' OR s LIKE '%\_%' OR s NOT LIKE '%b%'
SELECT id FROM bronze.f WHERE b OR k IS NULL
SELECT id FROM bronze.f WHERE b IS NOT TRUE
SELECT id, k = g AS a, k > g OR b AS c, NOT b AS e, k IS NULL AS f FROM bronze.f
SELECT id FROM bronze.f WHERE d::int = 3 OR d::numeric(12,1) = 4.5
SELECT id FROM bronze.f WHERE x::int = 1
SELECT id FROM bronze.f WHERE t::date = DATE '2023-11-20' OR t > TIMESTAMP '2023-12-01 00:00:00'
SELECT id FROM bronze.f WHERE day >= DATE '2022-03-01' AND z < TIMESTAMPTZ '2024-01-01 00:00:00+00'
SELECT id FROM bronze.f WHERE u = 'a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1'::uuid OR u > 'a3a3a3a3-a3a3-a3a3-a3a3-a3a3a3a3a3a3'::uuid
-- Joins
SELECT f.id, d.name FROM bronze.f f JOIN bronze.d d ON f.k = d.k
SELECT f.id, d.name FROM bronze.f f LEFT JOIN bronze.d d ON f.k = d.k
SELECT f.id, d.name FROM bronze.f f RIGHT JOIN bronze.d d ON f.k = d.k
SELECT f.id, d.name FROM bronze.f f FULL JOIN bronze.d d ON f.k = d.k
SELECT f.id, d.name FROM bronze.f f LEFT JOIN bronze.d d ON f.k = d.k AND d.lim > f.n
SELECT f.id, d.name FROM bronze.f f RIGHT JOIN bronze.d d ON f.k = d.k AND f.n > 10
SELECT f.id, d.name FROM bronze.f f FULL JOIN bronze.d d ON f.k = d.k AND f.b
SELECT f.id, d.name FROM bronze.f f JOIN bronze.d d ON f.k IS NOT DISTINCT FROM d.k
SELECT f.id, d.name FROM bronze.f f LEFT JOIN bronze.d d ON (f.k IS NOT DISTINCT FROM d.k) AND f.s = d.name
SELECT k, id, name FROM bronze.f JOIN bronze.d USING (k)
SELECT k, id, name FROM bronze.f LEFT JOIN bronze.d USING (k)
SELECT coalesce(f.k, d.k) AS k, id, name FROM bronze.f FULL JOIN bronze.d ON f.k = d.k AND f.b
SELECT f.id, d.name FROM bronze.f f, bronze.d d WHERE f.n < d.lim AND f.k > d.k
SELECT f.id, d.name FROM bronze.f f LEFT JOIN bronze.d d ON f.n < d.lim
SELECT a.id, b.id AS other FROM bronze.f a JOIN bronze.f b ON a.k = b.g AND a.id < b.id
SELECT a.id, b.name, c.name AS third FROM bronze.f a LEFT JOIN bronze.d b ON a.k = b.k LEFT JOIN bronze.d c ON a.g = c.k AND b.lim > c.lim
SELECT a.id, b.name, c.id AS third FROM bronze.f a LEFT JOIN (bronze.d b JOIN bronze.f c ON b.lim = c.n) ON a.k = b.k
SELECT a.id, b.name FROM bronze.f a CROSS JOIN (SELECT name FROM bronze.d WHERE k = 1) b
SELECT a.id, e.id AS other FROM bronze.f a LEFT JOIN bronze.e e ON a.k = e.k
SELECT a.id, e.id AS other FROM bronze.f a FULL JOIN bronze.e e ON a.k = e.k
SELECT a.id, e.id AS other FROM bronze.f a JOIN bronze.e e ON a.k = e.k
SELECT a.x, count(*) AS c FROM bronze.f a JOIN bronze.f b ON a.x = b.x GROUP BY a.x
SELECT count(*) AS c FROM bronze.f f LEFT JOIN bronze.d d ON f.k = d.k WHERE d.name IS NULL
SELECT f.id FROM bronze.f f LEFT JOIN bronze.d d ON f.k = d.k WHERE d.lim > 3 OR f.b
-- Subqueries
SELECT id FROM bronze.f WHERE k IN (SELECT k FROM bronze.d)
SELECT id FROM bronze.f WHERE k NOT IN (SELECT k FROM bronze.d)
SELECT id FROM bronze.f WHERE k NOT IN (SELECT k FROM bronze.d WHERE k IS NOT NULL)
SELECT id FROM bronze.f WHERE k NOT IN (SELECT k FROM bronze.d WHERE lim > 1000)
SELECT id FROM bronze.f WHERE k NOT IN (SELECT k FROM bronze.e)
SELECT id FROM bronze.f WHERE NOT (k IN (SELECT k FROM bronze.d WHERE k > 0))
SELECT id FROM bronze.f WHERE n > 0 AND k NOT IN (SELECT k FROM bronze.d WHERE k > 0) AND b
SELECT id FROM bronze.f f WHERE EXISTS (SELECT 1 FROM bronze.d d WHERE d.k = f.k AND d.lim > f.n)
SELECT id FROM bronze.f f WHERE NOT EXISTS (SELECT 1 FROM bronze.d d WHERE d.k = f.k)
SELECT id FROM bronze.f f WHERE EXISTS (SELECT 1 FROM bronze.d d WHERE d.lim > f.n)
SELECT id FROM bronze.f f WHERE NOT EXISTS (SELECT 1 FROM bronze.d d WHERE d.lim > f.n AND d.k <> f.k)
SELECT id FROM bronze.f f WHERE b OR EXISTS (SELECT 1 FROM bronze.d d WHERE d.k = f.k)
SELECT id FROM bronze.f f WHERE b OR NOT EXISTS (SELECT 1 FROM bronze.d d WHERE d.k = f.k)
SELECT id FROM bronze.f f WHERE EXISTS (SELECT 1 FROM bronze.e)
SELECT id FROM bronze.f f WHERE k IN (SELECT d.k FROM bronze.d d WHERE d.lim > f.n)
SELECT id, (SELECT count(*) FROM bronze.d d WHERE d.k = f.k) AS a FROM bronze.f f
SELECT id, (SELECT sum(lim) FROM bronze.d d WHERE d.k = f.k) AS a FROM bronze.f f
SELECT id, (SELECT coalesce(sum(lim), 0) + 1 FROM bronze.d d WHERE d.k = f.k) AS a FROM bronze.f f
SELECT id, (SELECT count(*) + 5 FROM bronze.d d WHERE d.k = f.k) AS a FROM bronze.f f
SELECT id, (SELECT count(lim) FROM bronze.d d WHERE d.k = f.k AND d.lim > 0) AS a FROM bronze.f f
SELECT id, (SELECT CASE WHEN count(*) = 0 THEN 'none' ELSE max(name) END FROM bronze.d d WHERE d.k = f.k) AS a FROM bronze.f f
SELECT id, (SELECT max(name) FROM bronze.d) AS a FROM bronze.f
SELECT id, (SELECT max(id) FROM bronze.e) AS a FROM bronze.f
SELECT id FROM bronze.f WHERE x > (SELECT avg(x) FROM bronze.f)
SELECT id FROM bronze.f WHERE d > (SELECT CAST(sum(d) / count(d) AS numeric(30, 10)) FROM bronze.f)
SELECT id FROM bronze.f f WHERE n = (SELECT max(n) FROM bronze.f i WHERE i.k = f.k)
SELECT id FROM bronze.f f WHERE (SELECT count(*) FROM bronze.d d WHERE d.k = f.k) = 0
-- Aggregates
SELECT k, count(*) AS a, count(n) AS b, sum(n) AS c, avg(n) AS e, min(n) AS f, max(n) AS g FROM bronze.f GROUP BY k
SELECT k, sum(d) AS a, avg(d) AS b, min(d) AS c, max(d) AS e FROM bronze.f GROUP BY k
SELECT k, sum(x) AS a, avg(x) AS b, min(x) AS c, max(x) AS e, avg(r) AS f, min(r) AS g FROM bronze.f GROUP BY k
SELECT k, var_pop(x) AS a, var_samp(x) AS b, stddev_pop(x) AS c, stddev(x) AS e, stddev_samp(n) AS f, var_samp(d) AS g FROM bronze.f GROUP BY k
SELECT k, g, min(s) AS a, max(s) AS b, min(t) AS c, max(z) AS e, min(day) AS f, bool_and(b) AS h, bool_or(b) AS i FROM bronze.f GROUP BY k, g
SELECT count(*) AS a, sum(n) AS b, avg(x) AS c, max(s) AS e FROM bronze.f
SELECT count(*) AS a, sum(n) AS b, avg(x) AS c, max(s) AS e, var_pop(x) AS f, sum(d) AS g FROM bronze.e
SELECT k, count(*) AS a FROM bronze.e GROUP BY k
SELECT count(DISTINCT k) AS a, count(DISTINCT s) AS b, sum(DISTINCT n) AS c, avg(DISTINCT d) AS e, count(DISTINCT x) AS f FROM bronze.f
SELECT k, count(DISTINCT g) AS a, sum(DISTINCT n) AS b, sum(n) AS c, max(DISTINCT s) AS e FROM bronze.f GROUP BY k
SELECT k, count(*) FILTER (WHERE n > 0) AS a, sum(n) FILTER (WHERE b) AS b, avg(x) FILTER (WHERE g = 1) AS c FROM bronze.f GROUP BY k
SELECT k, sum(n) AS a FROM bronze.f GROUP BY k HAVING sum(n) > 0 AND count(*) > 2
SELECT count(*) AS a FROM bronze.f HAVING count(*) > 1000
SELECT k + g AS a, sum(n) * 100 AS b, count(*) + 1 AS c FROM bronze.f GROUP BY k + g
SELECT sum(CASE WHEN b THEN n ELSE 0 END) AS a, sum(CASE WHEN b THEN x END) AS b FROM bronze.f
SELECT x, count(*) AS a FROM bronze.f GROUP BY x
SELECT sum(f.n) AS a FROM bronze.f f FULL JOIN bronze.d d ON f.k = d.k AND false
SELECT date_trunc('month', t) AS a, count(*) AS b, sum(d) AS c FROM bronze.f GROUP BY date_trunc('month', t)
SELECT k, string_agg(s, ',' ORDER BY s, id) AS a FROM bronze.f GROUP BY k
SELECT k, string_agg(DISTINCT s, ',' ORDER BY s) AS a FROM bronze.f GROUP BY k
SELECT k, array_agg(n ORDER BY n) AS a FROM bronze.f GROUP BY k
SELECT d.name, count(f.id) AS a, sum(f.d * d.w) AS b FROM bronze.d d LEFT JOIN bronze.f f ON f.k = d.k GROUP BY d.name
SELECT max(c) AS a, min(c) AS b, sum(c) AS e FROM (SELECT k, count(*) AS c FROM bronze.f GROUP BY k) q
SELECT u, count(*) AS a FROM bronze.f GROUP BY u
SELECT g, bit_and(k) AS a, bit_or(k) AS b, bit_xor(n) AS c FROM bronze.f GROUP BY g
SELECT k, unnest(q.a) AS b FROM (SELECT k, array_agg(n ORDER BY n) AS a FROM bronze.f GROUP BY k) q
-- Grouping sets
SELECT k, s, count(*) AS a FROM bronze.f GROUP BY GROUPING SETS ((k), (s), ())
SELECT k, g, count(*) AS a, sum(n) AS b FROM bronze.f GROUP BY ROLLUP (k, g)
SELECT k, g, sum(d) AS b, grouping(k) AS c FROM bronze.f GROUP BY CUBE (k, g)
SELECT k, g, count(*) AS a, sum(n) AS b, max(s) AS c FROM bronze.e GROUP BY ROLLUP (k, g)
SELECT k, g, count(*) AS a, avg(x) AS b, grouping(k, g) AS c, grouping(g, k) AS e FROM bronze.e GROUP BY CUBE (k, g)
SELECT k, s, count(*) AS a FROM bronze.e GROUP BY GROUPING SETS ((k), (), (s), ())
SELECT k FROM bronze.e GROUP BY ROLLUP (k)
SELECT count(*) AS a, max(n) AS b FROM bronze.e GROUP BY GROUPING SETS (())
SELECT k, grouping(k) AS a FROM bronze.f GROUP BY GROUPING SETS ((k), (), ())
SELECT k, count(*) AS a FROM bronze.f GROUP BY GROUPING SETS ((k), (k), (), ())
SELECT k, g, count(*) AS a, sum(n) AS b FROM bronze.f GROUP BY GROUPING SETS ((k, g), (g, k), (g))
SELECT g, count(*) AS a FROM bronze.f GROUP BY GROUPING SETS ((g), (g))
SELECT k, g, count(*) AS a FROM bronze.f GROUP BY k, ROLLUP (k, g)
SELECT k, g, count(*) AS a, grouping(k, g) AS b FROM bronze.f GROUP BY ROLLUP (k, g), CUBE (g, k)
SELECT k, g, s, b, count(*) AS a, grouping(k, g, s, b) AS c, grouping(b, k) AS e, grouping(s) AS f FROM bronze.f GROUP BY CUBE (k, g, s, b)
SELECT x * 0.0::double precision AS a, grouping(x * 0.0::double precision) AS b, count(*) AS c FROM bronze.f GROUP BY ROLLUP (x * 0.0::double precision)
SELECT x, r, grouping(x, r) AS a, count(*) AS b, sum(n) AS c FROM bronze.f GROUP BY CUBE (x, r)
SELECT count(*) AS a, grouping(q.z, q.k) AS b FROM (SELECT r * 0.0::real AS z, k FROM bronze.f) q GROUP BY GROUPING SETS ((q.z), (q.z, q.k), (q.z))
SELECT k, count(*) AS a FROM bronze.f GROUP BY ROLLUP (k) HAVING k > 0
SELECT k, count(*) AS a FROM bronze.f GROUP BY ROLLUP (k) HAVING grouping(k) = 0
SELECT k, count(*) AS a FROM bronze.f GROUP BY ROLLUP (k) HAVING grouping(k) = 1
SELECT k, g, sum(n) AS a FROM bronze.f GROUP BY CUBE (k, g) HAVING count(*) > 3 AND (grouping(k) = 1 OR g = 1)
SELECT k, count(*) AS a FROM bronze.e GROUP BY ROLLUP (k) HAVING count(*) = 0
SELECT k, count(*) AS a FROM bronze.e GROUP BY ROLLUP (k) HAVING k IS NOT NULL
SELECT q.k, q.a FROM (SELECT k, count(*) AS a FROM bronze.f GROUP BY GROUPING SETS ((k), ())) q WHERE q.k > 0 AND q.a > 1
SELECT k + g AS a, grouping(k + g) AS b, sum(n) * 2 AS c FROM bronze.f GROUP BY ROLLUP (k + g)
SELECT coalesce(upper(s), 'all') AS a, count(*) AS b FROM bronze.f GROUP BY GROUPING SETS ((upper(s)), (upper(s), n * 2), ())
SELECT CASE WHEN grouping(k) = 1 THEN 'all' ELSE k::text END AS a, sum(d) AS b, round(sum(d) / nullif(count(*), 0), 2) AS c FROM bronze.f GROUP BY ROLLUP (k)
SELECT k, string_agg(s, ',' ORDER BY s, id) AS a, count(DISTINCT g) AS b, sum(n) FILTER (WHERE b) AS c FROM bronze.f GROUP BY ROLLUP (k)
SELECT f.k, d.k AS dk, f.b, count(*) AS a FROM bronze.f f LEFT JOIN bronze.d d ON f.k = d.k GROUP BY GROUPING SETS ((f.k, f.b), (d.k), (f.k, d.k), ())
SELECT day, t, z, u, b, d, count(*) AS a FROM bronze.f GROUP BY GROUPING SETS ((day, t), (z, u), (b), (d), ())
SELECT q.k, q.a, d.name FROM (SELECT k, sum(n) AS a FROM bronze.f GROUP BY ROLLUP (k)) q LEFT JOIN bronze.d d ON d.k = q.k
WITH q AS (SELECT k, g, count(*) AS a FROM bronze.f GROUP BY ROLLUP (k, g)) SELECT i.k, i.a, o.a AS b FROM q i JOIN q o ON i.k = o.k WHERE o.g IS NULL
SELECT k, sum(a) AS b, count(*) AS c FROM (SELECT k, g, count(*) AS a FROM bronze.f GROUP BY CUBE (k, g)) q GROUP BY ROLLUP (k)
SELECT id FROM bronze.f WHERE n IN (SELECT max(n) FROM bronze.f GROUP BY ROLLUP (k))
SELECT id FROM bronze.f WHERE EXISTS (SELECT 1 FROM bronze.e GROUP BY ROLLUP (k))
SELECT id FROM bronze.f WHERE EXISTS (SELECT 1 FROM bronze.e GROUP BY ROLLUP (k) HAVING k > 0)
SELECT k, g, sum(n) AS a, rank() OVER (PARTITION BY grouping(k, g) ORDER BY sum(n) DESC) AS b FROM bronze.f GROUP BY CUBE (k, g)
SELECT k, count(*) AS a FROM bronze.f GROUP BY ROLLUP (k) ORDER BY count(*) DESC, k LIMIT 3
SELECT DISTINCT k FROM bronze.f GROUP BY CUBE (k, g)
SELECT k, count(*) AS a FROM bronze.f GROUP BY ROLLUP (k) UNION ALL SELECT g, count(*) FROM bronze.f GROUP BY CUBE (g)
-- One group
SELECT q.c FROM (SELECT 1 AS one, count(*) AS c FROM bronze.f) q WHERE q.one = 2
SELECT q.c FROM (SELECT 1 AS one, count(*) AS c FROM bronze.f) q WHERE q.one = 1 AND q.c > 3
SELECT 1 AS one, count(*) AS a FROM bronze.e GROUP BY one
SELECT 'x'::text AS one, k, count(*) AS a FROM bronze.f GROUP BY one, k
-- Sets
SELECT DISTINCT k, g FROM bronze.f
SELECT DISTINCT s, b FROM bronze.f
SELECT k FROM bronze.f UNION SELECT k FROM bronze.d
SELECT k FROM bronze.f UNION ALL SELECT k FROM bronze.d
SELECT k, s FROM bronze.f INTERSECT SELECT k, name FROM bronze.d
SELECT k, s FROM bronze.f EXCEPT SELECT k, name FROM bronze.d
SELECT k FROM bronze.d EXCEPT SELECT k FROM bronze.e
SELECT n FROM bronze.f UNION SELECT d FROM bronze.f
SELECT x FROM bronze.f INTERSECT SELECT r FROM bronze.f
(SELECT k FROM bronze.f UNION ALL SELECT g FROM bronze.f) EXCEPT SELECT k FROM bronze.d WHERE k > 1
VALUES (1, 'a'), (2, NULL), (NULL, 'c')
-- Windows
SELECT id, row_number() OVER (PARTITION BY k ORDER BY n, id, s, x, d, t, z, g, r, day, b, u) AS a FROM bronze.f
SELECT id, rank() OVER (PARTITION BY k ORDER BY g) AS a, dense_rank() OVER (PARTITION BY k ORDER BY g) AS b, percent_rank() OVER (ORDER BY g) AS c, cume_dist() OVER (ORDER BY g) AS e FROM bronze.f
SELECT id, sum(n) OVER (PARTITION BY k) AS a, avg(x) OVER (PARTITION BY k) AS b, count(*) OVER () AS c FROM bronze.f
SELECT id, sum(n) OVER (PARTITION BY k ORDER BY g) AS a, count(n) OVER (ORDER BY g DESC) AS b, max(x) OVER (ORDER BY g) AS c FROM bronze.f
SELECT n, d, lag(d) OVER (PARTITION BY k ORDER BY n, d) AS a, lead(d, 2) OVER (PARTITION BY k ORDER BY n, d) AS b FROM (SELECT DISTINCT k, n, d FROM bronze.f) q
SELECT n, first_value(d) OVER (PARTITION BY k ORDER BY n, d) AS a, last_value(d) OVER (PARTITION BY k ORDER BY n, d ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS b FROM (SELECT DISTINCT k, n, d FROM bronze.f) q
SELECT n, nth_value(d, 2) OVER (PARTITION BY k ORDER BY n, d) AS a, lag(d, 1, 0.00) OVER (PARTITION BY k ORDER BY n, d) AS b FROM (SELECT DISTINCT k, n, d FROM bronze.f) q
SELECT n, sum(d) OVER (ORDER BY n, d ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a, min(n) OVER (ORDER BY n, d ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS b, avg(d) OVER (ORDER BY n, d ROWS 3 PRECEDING) AS c FROM (SELECT DISTINCT n, d FROM bronze.f) q
SELECT n, sum(x) OVER (ORDER BY n RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING) AS a FROM bronze.f
SELECT id, ntile(4) OVER (ORDER BY n, d) AS a FROM (SELECT DISTINCT id, n, d FROM bronze.f WHERE n IS NOT NULL AND d IS NOT NULL) q
SELECT id, s FROM (SELECT id, s, row_number() OVER (PARTITION BY k ORDER BY n DESC, d, id, s, t, x) AS r FROM bronze.f) q WHERE r = 1
SELECT id, s FROM (SELECT id, s, row_number() OVER (PARTITION BY k ORDER BY n DESC, d, id, s, t, x) AS r FROM bronze.f) q WHERE r = 2
SELECT id, s FROM (SELECT id, s, rank() OVER (PARTITION BY k ORDER BY g DESC) AS r FROM bronze.f) q WHERE r <= 2
SELECT k, sum(n) AS a, rank() OVER (ORDER BY sum(n) DESC) AS b FROM bronze.f GROUP BY k
SELECT n, min(d) OVER (ORDER BY n, d ROWS 1 PRECEDING) AS a, max(day) OVER (ORDER BY n, d, day ROWS 1 PRECEDING) AS b, max(t) OVER (ORDER BY n, d, day, t ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS c, count(d) OVER (ORDER BY n, d ROWS 1 PRECEDING) AS e, sum(n) OVER (ORDER BY n, d ROWS 1 PRECEDING) AS f FROM (SELECT DISTINCT n, d, day, t FROM bronze.f) q
-- Limits
SELECT n, d FROM bronze.f ORDER BY n DESC, d LIMIT 7
SELECT n, d FROM bronze.f ORDER BY n, d LIMIT 7 OFFSET 5
SELECT n FROM bronze.f ORDER BY n NULLS FIRST LIMIT 30
SELECT count(*) AS a, sum(n) AS b FROM (SELECT n FROM bronze.f ORDER BY n LIMIT 20) q
SELECT id FROM bronze.f WHERE k IN (SELECT k FROM bronze.d ORDER BY lim DESC, k, name, w LIMIT 2)
SELECT s FROM bronze.f ORDER BY length(s) DESC, s LIMIT 9
SELECT x FROM bronze.f ORDER BY x DESC LIMIT 30
-- Common table expressions
WITH q AS (SELECT k, count(*) AS c FROM bronze.f GROUP BY k) SELECT a.k, a.c, b.c AS other FROM q a JOIN q b ON a.c = b.c
WITH a AS (SELECT k, n FROM bronze.f WHERE b), c AS (SELECT k, sum(n) AS s FROM a GROUP BY k) SELECT a.n, c.s FROM a LEFT JOIN c ON a.k = c.k
WITH f AS (SELECT * FROM bronze.f WHERE n > 0) SELECT id, s FROM f WHERE k IS NULL
SELECT 1 AS one WHERE 1 = 0
SELECT 1 AS one, 'x' AS two, 1.5 AS three, true AS four
-- Subqueries that use outer columns
SELECT id, (SELECT 0.5 * sum(e.lim) FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT CAST(0.8 * sum(e.lim) / count(*) AS numeric(20,6)) FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id FROM bronze.f i WHERE n < (SELECT CAST(0.8 * sum(w) / count(*) AS numeric(20,6)) FROM bronze.d e WHERE e.k = i.k)
SELECT id FROM bronze.f i WHERE n < 0.8 * (SELECT CAST(sum(w) / count(*) AS numeric(20,6)) FROM bronze.d e WHERE e.k = i.k)
SELECT id, (SELECT count(*) FROM bronze.d e WHERE e.k = i.k) AS a, (SELECT count(*) + 1 FROM bronze.d e WHERE e.k = i.g) AS b FROM bronze.f i
SELECT id, (SELECT count(*) FROM bronze.d e WHERE e.k = i.k) AS a, (SELECT count(*) FROM bronze.d e WHERE e.k = i.k) + 1 AS b FROM bronze.f i
SELECT id AS a, n AS b, (SELECT count(*) AS n FROM bronze.d e WHERE e.k = i.k) AS n FROM bronze.f i
SELECT id, n, (SELECT count(*) AS id FROM bronze.d e WHERE e.k = i.k) AS m FROM bronze.f i
SELECT id, (SELECT coalesce(sum(lim), 0) FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT coalesce(sum(w), 0) FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT coalesce(max(name), 'none') FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT CASE WHEN count(*) = 0 THEN 'none' WHEN count(lim) < 2 THEN 'few' ELSE 'many' END FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT count(*) FROM bronze.d e WHERE e.k = i.k AND e.lim < i.n) AS c FROM bronze.f i
SELECT id, (SELECT count(*) FROM bronze.f j WHERE j.k = i.k AND j.id < i.id) AS c FROM bronze.f i
SELECT id, (SELECT sum(j.d) FROM bronze.f j WHERE j.k = i.k AND j.t <= i.t) AS c FROM bronze.f i
SELECT id, (SELECT max(lim) FROM bronze.d e WHERE e.k < i.k) AS c FROM bronze.f i
SELECT id, (SELECT sum(lim * i.n) FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT sum(lim) + i.n FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id FROM bronze.f i WHERE x > (SELECT avg(j.x) FROM bronze.f j WHERE j.k = i.k)
SELECT id FROM bronze.f i WHERE x > (SELECT avg(j.x) FROM bronze.f j WHERE j.g IS NOT DISTINCT FROM i.g)
SELECT id, (SELECT count(*) FROM bronze.f j WHERE j.x = i.x) AS c FROM bronze.f i
SELECT id, (SELECT count(*) FROM bronze.f j WHERE j.x > i.x AND j.k = i.k) AS c FROM bronze.f i
SELECT k, sum(n * (SELECT max(lim) FROM bronze.d)) AS c FROM bronze.f GROUP BY k
SELECT k, sum((SELECT max(lim) FROM bronze.d e WHERE e.k = i.k)) AS c FROM bronze.f i GROUP BY k
SELECT k, count(*) AS c FROM bronze.f GROUP BY k HAVING count(*) > (SELECT count(*) FROM bronze.d e WHERE e.k = f.k)
SELECT k, count(*) AS c, (SELECT max(name) FROM bronze.d e WHERE e.k = f.k) AS m FROM bronze.f GROUP BY k
SELECT (SELECT count(*) FROM bronze.f) AS a, (SELECT max(lim) FROM bronze.d) AS b
SELECT (SELECT k FROM bronze.e LIMIT 1) AS a
SELECT (SELECT sum(k) FROM bronze.e) AS a, (SELECT count(*) FROM bronze.e) AS b
SELECT id FROM bronze.f i WHERE EXISTS (SELECT count(*) FROM bronze.d e WHERE e.k = i.k)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT sum(lim) FROM bronze.d e WHERE e.k = i.k HAVING count(*) > 1)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT sum(lim) FROM bronze.d e WHERE e.k = i.k HAVING count(*) = 0)
SELECT id FROM bronze.f i WHERE g IN (SELECT count(*) FROM bronze.d e WHERE e.k = i.k)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT 1 FROM bronze.d e WHERE e.k = i.k GROUP BY name HAVING count(*) > 1)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT DISTINCT name FROM bronze.d e WHERE e.k = i.k AND e.lim > i.n)
SELECT id, (SELECT max(e.lim) FROM bronze.d e WHERE e.k = i.k AND e.lim > (SELECT min(j.n) FROM bronze.f j WHERE j.k = e.k)) AS c FROM bronze.f i
SELECT id, (SELECT sum(e.lim) + (SELECT max(w) FROM bronze.d) FROM bronze.d e WHERE e.k = i.k) AS c FROM bronze.f i
SELECT id, CASE WHEN n > 0 THEN (SELECT max(lim) FROM bronze.d e WHERE e.k = i.k) ELSE (SELECT min(lim) FROM bronze.d e WHERE e.k = i.k) END AS c FROM bronze.f i
SELECT id, (SELECT string_agg(name, ',' ORDER BY name) FROM bronze.d e WHERE e.k = i.k) AS c, (SELECT bool_or(lim > 3) FROM bronze.d e WHERE e.k = i.k) AS b FROM bronze.f i
SELECT i.id FROM bronze.f i JOIN bronze.d e ON e.k = i.k AND e.lim = (SELECT max(lim) FROM bronze.d z WHERE z.k = e.k)
SELECT id, (SELECT count(DISTINCT name) FROM bronze.d e, bronze.f j WHERE e.k = i.k AND j.k = e.k AND j.n > i.n) AS c FROM bronze.f i
SELECT q.id, (SELECT count(*) FROM bronze.d e WHERE e.k = q.m) AS c FROM (SELECT id, k % 3 AS m FROM bronze.f) q
SELECT id FROM bronze.f i WHERE g NOT IN (SELECT count(*) FROM bronze.d e WHERE e.k = i.k)
SELECT id FROM bronze.f i WHERE g IN (SELECT max(lim) FROM bronze.d e WHERE e.k = i.k HAVING count(*) > 1)
SELECT id FROM bronze.f i WHERE g NOT IN (SELECT max(lim) FROM bronze.d e WHERE e.k = i.k HAVING count(*) > 1)
SELECT id FROM bronze.f i WHERE NOT EXISTS (SELECT sum(lim) FROM bronze.d e WHERE e.k = i.k HAVING sum(lim) > 20)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT 1 FROM (SELECT lim * 2 AS v FROM bronze.d e WHERE e.k = i.k) q WHERE v > i.n)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT 1 FROM (SELECT k, lim FROM bronze.d ORDER BY lim, k LIMIT 5) q WHERE q.k = i.k)
SELECT id FROM bronze.f i WHERE EXISTS (SELECT 1 FROM (SELECT k, row_number() OVER (PARTITION BY name ORDER BY lim, k) AS r FROM bronze.d) q WHERE q.k = i.k AND q.r = 1)
SELECT id FROM bronze.f i WHERE k IN (SELECT k FROM (SELECT k, lim FROM bronze.d ORDER BY lim, k LIMIT 5) q WHERE q.lim > i.g)
SELECT id, (SELECT max(r) FROM (SELECT k, row_number() OVER (PARTITION BY name ORDER BY lim, k) AS r FROM bronze.d UNION ALL SELECT g, n FROM bronze.f) q WHERE q.k = i.k) AS c FROM bronze.f i
SELECT id, (SELECT sum(c) FROM (SELECT k, name, count(*) AS c FROM bronze.d GROUP BY ROLLUP (k, name)) q WHERE q.k = i.k AND q.c < i.n) AS c FROM bronze.f i
SELECT a.id, (SELECT count(*) FROM bronze.d e JOIN bronze.f b ON b.k = e.k WHERE b.g = a.g AND e.lim > a.n) AS c FROM bronze.f a WHERE a.n > 3
SELECT id FROM bronze.f i WHERE n NOT IN (SELECT lim FROM bronze.d e WHERE e.k = i.k)
SELECT id FROM bronze.f i WHERE NOT (n + 1 IN (SELECT lim FROM bronze.d e WHERE e.k < i.k))
SELECT id FROM bronze.f i WHERE s NOT IN (SELECT name FROM bronze.d e WHERE e.k = i.k GROUP BY name HAVING count(*) > 0)
SELECT id FROM bronze.f i WHERE k NOT IN (SELECT DISTINCT k FROM bronze.f j WHERE j.g = i.g AND j.n > i.n)
-- Conditions as columns
SELECT k, bool_or(id > 0) FILTER (WHERE n < 2) AS a, bit_or(id) FILTER (WHERE n < 2) AS b, string_agg(s, ',' ORDER BY s) FILTER (WHERE n < 2) AS c FROM bronze.f GROUP BY k
SELECT b1, b2, b3, b4, b5, count(*) AS c FROM (SELECT (n < 2) IS TRUE AS b1, (n < 2) IS NOT TRUE AS b2, (n < 2) IS FALSE AS b3, (n < 2) IS UNKNOWN AS b4, (n IS DISTINCT FROM k) AS b5 FROM bronze.f) q GROUP BY b1, b2, b3, b4, b5
SELECT b1, count(*) AS c, sum(n) AS t FROM (SELECT (n < 2) IS NOT FALSE AS b1, s IS NULL AS b2, n FROM bronze.f) q GROUP BY b1, b2
-- Rows
SELECT id FROM bronze.f WHERE (k, n) IN (SELECT k, lim FROM bronze.d)
SELECT id FROM bronze.f WHERE (k, n) NOT IN (SELECT k, lim FROM bronze.d)
SELECT id FROM bronze.f WHERE (k, n) IN ((1, 2), (2, 3))
SELECT id FROM bronze.f WHERE (k, n) = (1, 2)
SELECT id FROM bronze.f WHERE (k, n) < (1, 2)
SELECT id FROM bronze.f WHERE (k, n) >= (1, 2) AND (k, g, n) < (3, 2, 10)
SELECT id FROM bronze.f WHERE (k, n) <> (1, 2) OR (k, n) NOT IN ((1, 2), (2, NULL))
SELECT id FROM bronze.f i WHERE (k, n) IN (SELECT k, lim FROM bronze.d e WHERE e.lim > i.g)
SELECT id FROM bronze.f i WHERE (k, g) NOT IN (SELECT k, lim FROM bronze.d e WHERE e.k = i.k)
SELECT id FROM bronze.f i WHERE NOT ((k, g) IN (SELECT k, lim FROM bronze.d e WHERE e.k < 3))
SELECT id FROM bronze.f WHERE (k, g) IN (SELECT k, max(g) FROM bronze.f GROUP BY k)
SELECT id FROM bronze.f WHERE (k, g) IN (SELECT k, g FROM bronze.f WHERE n > 10 GROUP BY k, g HAVING count(*) > 1) AND n < 10
SELECT id FROM bronze.f WHERE (k, x) IN (SELECT k, x FROM bronze.f WHERE n > 10)
SELECT id FROM bronze.f i WHERE (s, n + 1) IN (SELECT DISTINCT s, n FROM bronze.f j WHERE j.id < i.id)
SELECT id FROM bronze.f WHERE (k, n) IN (SELECT k, lim FROM bronze.d UNION SELECT g, lim FROM bronze.d, bronze.f)
SELECT id FROM bronze.f i WHERE (k, n) NOT IN (SELECT k, lim FROM bronze.d WHERE k IS NOT NULL AND lim IS NOT NULL)
-- Numbers with exponents
SELECT id FROM bronze.f WHERE x < 1e300
SELECT id, x * 1e300 AS a FROM bronze.f
SELECT id, 1e300::double precision AS a FROM bronze.f
SELECT id, 1e20 AS a, 1.5e3 AS b, 12e-3 AS c FROM bronze.f
SELECT id FROM bronze.f WHERE x > -1e300 AND x BETWEEN -1e200 AND 1e200 AND x IN (0.5, 1e300) OR x * 1e300 > 1e299
SELECT id, CASE WHEN x > 0 THEN x ELSE -1e300 END AS a, coalesce(x, 1e300) AS b FROM bronze.f
SELECT id, n / 1e3 AS a, n * 1e2 AS b, 1e0 AS c, 123456789012345678901234567890 AS e, 0.000000000000000000000000000000000000001e5 AS f FROM bronze.f
SELECT id, d * 1e20 AS a FROM bronze.f
-- Names and other words
SELECT id, sum(n) OVER (w ORDER BY id) AS a FROM bronze.f WINDOW w AS (PARTITION BY k)
SELECT id, sum(n) OVER (w ORDER BY id) AS a, count(*) OVER w AS c, max(n) OVER v AS m, min(n) OVER (v) AS l FROM bronze.f WINDOW w AS (PARTITION BY k), v AS (w ORDER BY g)
SELECT k, sum(n) AS s, rank() OVER (w ORDER BY sum(n) DESC) AS r FROM bronze.f GROUP BY k, g WINDOW w AS (PARTITION BY k)
SELECT f.* FROM bronze.f WHERE f.n = (SELECT max(n) FROM bronze.f)
SELECT d.*, f.id FROM bronze.d JOIN bronze.f ON f.k = d.k
SELECT d.*, x.id FROM bronze.d, bronze.f AS x WHERE x.k = d.k AND x.n > 3
SELECT mod(n, 7) AS a, mod(k, 2) AS b, mod(d, 3) AS c FROM bronze.f
SELECT k, every(b) AS e FROM bronze.f GROUP BY k
SELECT n, d FROM bronze.f ORDER BY n, d FETCH FIRST 5 ROWS ONLY
SELECT n, d FROM bronze.f ORDER BY n, d OFFSET 2 ROWS FETCH NEXT ROW ONLY
SELECT id, day + 1 AS a, day - 7 AS b, 3 + day AS c, day + k AS e, day - k * 2 AS f FROM bronze.f
SELECT id FROM bronze.f WHERE day > DATE '2023-11-20' + 7 AND day - 3 < '2024-01-01'
SELECT id, s COLLATE "C" AS a FROM bronze.f WHERE s COLLATE "C" > 'a'
SELECT k, count(*) AS c FROM bronze.f GROUP BY k HAVING sum(n) > 1.5 * (SELECT count(*) FROM bronze.f j WHERE j.k = f.k)
SELECT id, (n * 1.0 / 3)::numeric(20, 4) AS a FROM bronze.f
SELECT id, x::int + 1 AS a, round(d)::int AS b FROM bronze.f
-- As TPC-DS asks
WITH customer_total AS (SELECT k AS c, g AS st, sum(d) AS total FROM bronze.f GROUP BY k, g) SELECT ctr1.c, ctr1.st FROM customer_total ctr1 WHERE ctr1.total > (SELECT CAST(sum(total) * 1.2 / count(*) AS numeric(30, 6)) FROM customer_total ctr2 WHERE ctr1.st = ctr2.st)
SELECT k, g, sum(d) AS sumsales, rank() OVER (PARTITION BY k ORDER BY sum(d) DESC) AS rk FROM bronze.f GROUP BY ROLLUP (k, g)
SELECT k, g, grouping(k) + grouping(g) AS lochierarchy, rank() OVER (PARTITION BY grouping(k) + grouping(g), CASE WHEN grouping(g) = 0 THEN k END ORDER BY sum(n) DESC) AS r FROM bronze.f GROUP BY ROLLUP (k, g)
SELECT * FROM (SELECT k, g, sum(x) AS s, avg(sum(x)) OVER (PARTITION BY k) AS a FROM bronze.f GROUP BY k, g) q WHERE CASE WHEN a > 0 THEN abs(s - a) / a ELSE NULL END > 0.1
SELECT count(*) AS c FROM ((SELECT DISTINCT k FROM bronze.f) INTERSECT (SELECT DISTINCT k FROM bronze.d) EXCEPT (SELECT k FROM bronze.f WHERE n > 45)) q
SELECT a.k, count(*) AS c FROM bronze.f a LEFT JOIN bronze.d b ON a.k = b.k WHERE b.k IS NULL GROUP BY a.k
SELECT sum(CASE WHEN extract(dow FROM day) = 0 THEN n ELSE 0 END) AS sun, sum(CASE WHEN extract(dow FROM day) = 1 THEN n END) AS mon FROM bronze.f
SELECT k, count(DISTINCT id) AS c, sum(n) AS s FROM bronze.f f1 WHERE EXISTS (SELECT * FROM bronze.f f2 WHERE f1.k = f2.k AND f1.g <> f2.g) AND NOT EXISTS (SELECT * FROM bronze.d WHERE d.k = f1.k AND d.lim > 40) GROUP BY k
SELECT q1.k, q1.c AS c1, q2.c AS c2 FROM (SELECT k, count(*) AS c FROM bronze.f WHERE b GROUP BY k) q1 FULL JOIN (SELECT k, count(*) AS c FROM bronze.f WHERE NOT b GROUP BY k) q2 ON q1.k = q2.k
SELECT i.k, max(i.n) AS m FROM bronze.f i WHERE i.d > (SELECT 1.2 * min(j.d) FROM bronze.f j WHERE j.g = i.g) AND i.k IN (SELECT k FROM bronze.d WHERE lim > (SELECT min(lim) FROM bronze.d)) GROUP BY i.k
SELECT k, count(*) OVER (PARTITION BY k ORDER BY n GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a FROM bronze.f
SELECT k, name FROM bronze.d WHERE k IN (SELECT k FROM bronze.f WHERE n > 10 EXCEPT SELECT k FROM bronze.f WHERE n < -30)
SELECT x.k, (SELECT count(*) FROM bronze.d WHERE d.k = x.k) AS c FROM (SELECT DISTINCT k FROM bronze.f UNION SELECT lim::int FROM bronze.d) x
SELECT k, lim FROM bronze.d WHERE lim = (SELECT min(e.lim) FROM bronze.d e WHERE e.name = d.name) AND w >= (SELECT 0.5 * max(e.w) FROM bronze.d e WHERE e.lim <= d.lim)
SELECT date_trunc('month', t) AS m, k, sum(d) AS rev, sum(sum(d)) OVER (PARTITION BY k ORDER BY date_trunc('month', t)) AS running FROM bronze.f GROUP BY date_trunc('month', t), k
SELECT k, day, sum(d) AS rev, rank() OVER (PARTITION BY k ORDER BY sum(d) DESC) AS r FROM bronze.f GROUP BY k, day
SELECT id, sum(n) OVER (PARTITION BY k ORDER BY day RANGE BETWEEN INTERVAL '7 days' PRECEDING AND CURRENT ROW) AS w FROM bronze.f
SELECT k, g, sum(n) AS s, grouping(k) AS gk, grouping(g) AS gg, grouping(k, g) AS gkg FROM bronze.f GROUP BY ROLLUP (k, g)
WITH a AS (SELECT k, sum(n) AS s FROM bronze.f GROUP BY k), b AS (SELECT k, sum(lim) AS l FROM bronze.d GROUP BY k) SELECT coalesce(a.k, b.k) AS k, s, l FROM a FULL JOIN b ON a.k = b.k
SELECT q.k, sum(q.v) AS s FROM (VALUES (1, 2), (2, 3), (1, 4)) AS q(k, v) GROUP BY q.k
SELECT t1.k FROM bronze.d t1 WHERE NOT EXISTS (SELECT 1 FROM bronze.f t2 WHERE t2.k = t1.k AND NOT EXISTS (SELECT 1 FROM bronze.f t3 WHERE t3.k = t2.k AND t3.id > t2.id))
SELECT id FROM bronze.f i WHERE 2 > (SELECT count(DISTINCT j.n) FROM bronze.f j WHERE j.k = i.k AND j.n > i.n)
