-- Operators over two tables with NULLs, duplicates, zeros of both signs, NaN, and a third that begins empty.
--! schema
CREATE TABLE t (id int PRIMARY KEY, k int, g int, n bigint, d numeric(12,2), x double precision, s text, b boolean, day date, at timestamp);
CREATE TABLE u (id int PRIMARY KEY, k int, lim int, w numeric(8,2), name text);
CREATE TABLE e (id int PRIMARY KEY, k int, n int);
INSERT INTO t SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE i % 6 END, CASE WHEN i % 11 = 0 THEN NULL ELSE i % 4 END, CASE WHEN i % 13 = 0 THEN NULL ELSE i % 10 - 3 END, CASE WHEN i % 17 = 0 THEN NULL ELSE (i * 37 % 1000) / 8.0 END, CASE WHEN i % 19 = 0 THEN NULL WHEN i % 23 = 0 THEN 'NaN' WHEN i % 5 = 0 THEN 0 WHEN i % 5 = 1 THEN -0.0 ELSE i / 7.0 END, CASE WHEN i % 8 = 0 THEN NULL ELSE (ARRAY['a', 'ab', 'b', 'ba', 'a', 'c'])[1 + i % 6] END, CASE WHEN i % 9 = 0 THEN NULL ELSE i % 2 = 0 END, '2024-01-01'::date + i % 15, '2024-01-01'::timestamp + i * interval '7 hours' FROM generate_series(1, 120) i;
INSERT INTO u SELECT i, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 8 END, i * 3 % 10, CASE WHEN i % 4 = 0 THEN NULL ELSE i / 4.0 END, CASE WHEN i % 6 = 0 THEN NULL ELSE (ARRAY['a', 'b', 'c', 'ba'])[1 + i % 4] END FROM generate_series(1, 24) i;

--! step both sides of a join in one transaction
INSERT INTO t VALUES (201, 3, 1, 5, 1.25, 0.5, 'a', true, '2024-02-01', '2024-02-01 10:00:00'), (202, 7, NULL, -3, NULL, 'Infinity', 'zz', false, NULL, NULL);
INSERT INTO u VALUES (31, 3, 4, 1.50, 'a'), (32, 7, 2, NULL, NULL);
UPDATE t SET n = n + 1, x = x * 2 WHERE id % 10 = 3;
UPDATE u SET lim = lim + 3 WHERE k = 2;
DELETE FROM t WHERE id % 12 = 5;
DELETE FROM u WHERE id IN (1, 9);
INSERT INTO e VALUES (1, 3, 1), (2, NULL, 2), (3, 5, 3);
--! step keys become NULL, their partners go, and so do boundaries
UPDATE t SET k = NULL WHERE id % 6 = 1;
DELETE FROM u WHERE k = 1;
UPDATE u SET k = 1 WHERE id = 10;
UPDATE u SET k = NULL WHERE id = 2;
UPDATE t SET k = 4, g = NULL WHERE k = 5;
UPDATE e SET k = 4 WHERE id = 1;
UPDATE t SET id = id + 1000 WHERE id IN (10, 20, 30);
-- Boundaries go.
DELETE FROM t WHERE n = (SELECT max(n) FROM t) OR d = (SELECT min(d) FROM t);
UPDATE t SET s = 'a' WHERE s = 'c';
UPDATE t SET x = -0.0 WHERE x = 0.5;
UPDATE u SET name = 'q' WHERE lim > 6;
DELETE FROM e WHERE k IS NULL;
INSERT INTO e SELECT i, i % 8, i % 3 FROM generate_series(10, 30) i;
--! step one side is emptied
DELETE FROM u;
UPDATE t SET g = 2 WHERE g IS NULL;
--! step the other too, the first reborn
DELETE FROM t;
INSERT INTO u SELECT i, i % 3, i, i * 1.5, 'b' FROM generate_series(1, 6) i;
--! step all reborn under the same ids
INSERT INTO t SELECT i, i % 4, i % 3, i % 5, i, i * 0.1, (ARRAY['a', 'b', NULL])[1 + i % 3], i % 2 = 0, '2024-03-01', '2024-03-01 00:00:00' FROM generate_series(1, 40) i;
DELETE FROM e WHERE id > 15;

--! statements linear
SELECT id, k + g AS a, n * 2 AS b, d - 1 AS c, x / 2 AS f FROM bronze.t;
SELECT k, s FROM bronze.t;
SELECT s FROM bronze.t WHERE n > 2;
SELECT id FROM bronze.t WHERE x = 0;
SELECT id FROM bronze.t WHERE x > 3 AND (b IS NOT TRUE);
SELECT id, CASE WHEN n > 2 THEN 'high' WHEN n < 0 THEN 'low' ELSE s END AS c FROM bronze.t;
SELECT k FROM bronze.t UNION ALL SELECT k FROM bronze.u;
SELECT k, 't' AS src FROM bronze.t WHERE k > 2 UNION ALL SELECT k, 'u' FROM bronze.u UNION ALL SELECT k, 'e' FROM bronze.e;
SELECT k AS a, k AS b FROM (SELECT k FROM bronze.t WHERE k > 0) q WHERE k < 4;
SELECT 1 AS one FROM bronze.t WHERE id < 50;
SELECT id, CASE WHEN n <> 0 THEN 100 / n END AS r, upper(s) AS s, length(s) AS l FROM bronze.t;

SELECT t.* FROM bronze.t WHERE mod(n, 2) = 0 AND s COLLATE "C" > 'a';
SELECT id, day + 1 AS a, day - k AS b FROM bronze.t WHERE day > DATE '2024-01-10' + 7;

--! statements joins
SELECT t.id, u.name FROM bronze.t JOIN bronze.u ON t.k = u.k;
SELECT t.id, u.id AS other FROM bronze.t LEFT JOIN bronze.u ON t.k = u.k;
SELECT t.id, u.id AS other FROM bronze.t RIGHT JOIN bronze.u ON t.k = u.k;
SELECT t.id, u.id AS other FROM bronze.t FULL JOIN bronze.u ON t.k = u.k;
SELECT t.s, u.name FROM bronze.t LEFT JOIN bronze.u ON t.k = u.k;
SELECT t.id, u.id AS other FROM bronze.t LEFT JOIN bronze.u ON t.k = u.k AND u.lim > t.n;
SELECT t.id, u.id AS other FROM bronze.t RIGHT JOIN bronze.u ON t.k = u.k AND t.n > 2;
SELECT t.id, u.id AS other FROM bronze.t FULL JOIN bronze.u ON t.k = u.k AND t.b;
SELECT t.id, u.id AS other FROM bronze.t JOIN bronze.u ON t.k IS NOT DISTINCT FROM u.k;
SELECT t.id, u.id AS other FROM bronze.t LEFT JOIN bronze.u ON (t.k IS NOT DISTINCT FROM u.k) AND t.s = u.name;
SELECT t.id, u.id AS other FROM bronze.t JOIN bronze.u ON t.n < u.lim AND t.k > u.k;
SELECT t.id, u.id AS other FROM bronze.t LEFT JOIN bronze.u ON t.n < u.lim;
SELECT a.id, b.id AS other FROM bronze.t a JOIN bronze.t b ON a.k = b.g AND a.id < b.id;
SELECT a.id, b.id AS other FROM bronze.t a LEFT JOIN bronze.t b ON a.id = b.id + 1;
SELECT t.id, u.id AS u, e.id AS e FROM bronze.t JOIN bronze.u ON t.k = u.k JOIN bronze.e ON e.k = u.k;
SELECT t.id, u.id AS u, e.id AS e FROM bronze.t LEFT JOIN bronze.u ON t.k = u.k LEFT JOIN bronze.e ON e.k = t.g AND e.n < u.lim;
SELECT t.id, u.id AS u, e.id AS e FROM bronze.t FULL JOIN bronze.u ON t.k = u.k FULL JOIN bronze.e ON e.k = u.k;
SELECT t.id, q.u, q.e FROM bronze.t LEFT JOIN (SELECT u.k, u.id AS u, e.id AS e FROM bronze.u JOIN bronze.e ON u.k = e.k) q ON q.k = t.k;
SELECT t.id, u.id AS other FROM bronze.t CROSS JOIN bronze.u WHERE t.id < 15;
SELECT t.id, q.m FROM bronze.t CROSS JOIN (SELECT max(lim) AS m FROM bronze.u) q;
SELECT a.c AS x, b.c AS y FROM (SELECT count(*) AS c FROM bronze.t) a FULL JOIN (SELECT count(*) AS c FROM bronze.u) b ON a.c = b.c;
SELECT a.id, b.id AS other FROM bronze.t a JOIN bronze.t b ON a.x = b.x AND a.id <> b.id;
SELECT t.id, u.id AS other FROM bronze.t JOIN bronze.u ON t.d = u.w;
SELECT t.id, u.id AS other FROM bronze.t JOIN bronze.u ON t.n = u.k;
SELECT t.id FROM bronze.t LEFT JOIN bronze.u ON t.k = u.k WHERE u.id IS NULL;
SELECT t.id, u.name FROM bronze.t LEFT JOIN bronze.u ON t.k = u.k WHERE u.lim > 3 OR t.b;
SELECT a.k, a.c, b.c AS d FROM (SELECT k, count(*) AS c FROM bronze.t GROUP BY k) a FULL JOIN (SELECT k, count(*) AS c FROM bronze.u GROUP BY k) b ON a.k = b.k;
SELECT t.id, v.id AS other FROM bronze.t JOIN (SELECT DISTINCT k, id FROM bronze.u WHERE lim > 2) v ON v.k = t.k;

--! statements subqueries
SELECT id FROM bronze.t WHERE k IN (SELECT k FROM bronze.u);
SELECT id FROM bronze.t WHERE k NOT IN (SELECT k FROM bronze.u);
SELECT id FROM bronze.t WHERE k NOT IN (SELECT k FROM bronze.e);
SELECT id FROM bronze.t WHERE n > 0 AND k NOT IN (SELECT k FROM bronze.e WHERE n > 0) AND b;
SELECT s FROM bronze.t WHERE k IN (SELECT k FROM bronze.u WHERE lim > 3);
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k);
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k AND u.lim > t.n);
SELECT id FROM bronze.t WHERE NOT EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k);
SELECT id FROM bronze.t WHERE NOT EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k AND u.lim > t.n);
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM bronze.e);
SELECT id FROM bronze.t WHERE NOT EXISTS (SELECT 1 FROM bronze.e);
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM bronze.u WHERE u.lim > t.n);
SELECT id FROM bronze.t WHERE b OR EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k);
SELECT id FROM bronze.t WHERE b OR NOT EXISTS (SELECT 1 FROM bronze.e WHERE e.k = t.k);
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k) AND NOT EXISTS (SELECT 1 FROM bronze.e WHERE e.k = t.k);
SELECT id FROM bronze.t WHERE k IN (SELECT u.k FROM bronze.u WHERE u.lim > t.n);
SELECT id, (SELECT count(*) FROM bronze.u WHERE u.k = t.k) AS c FROM bronze.t;
SELECT id, (SELECT sum(lim) FROM bronze.u WHERE u.k = t.k) AS c FROM bronze.t;
SELECT id, (SELECT coalesce(max(name), 'none') FROM bronze.u WHERE u.k = t.k) AS c FROM bronze.t;
SELECT id, (SELECT 0.5 * sum(w) FROM bronze.u WHERE u.k = t.k) AS c FROM bronze.t;
SELECT id, (SELECT max(lim) FROM bronze.u) AS m FROM bronze.t;
SELECT id FROM bronze.t WHERE n > (SELECT min(lim) FROM bronze.u);
SELECT id FROM bronze.t WHERE n = (SELECT max(n) FROM bronze.t i WHERE i.k = t.k);
SELECT id FROM bronze.t WHERE x > (SELECT avg(x) FROM bronze.t WHERE x < 100);
SELECT id FROM bronze.t WHERE (SELECT count(*) FROM bronze.e WHERE e.k = t.k) = 0;
SELECT id FROM bronze.t WHERE n < coalesce((SELECT max(n) FROM bronze.e), 1);
WITH q AS (SELECT k, count(*) AS c FROM bronze.t GROUP BY k) SELECT a.k, a.c, b.c AS d FROM q a JOIN q b ON a.c = b.c;
WITH a AS (SELECT k, n FROM bronze.t WHERE b), c AS (SELECT k, sum(n) AS s FROM a GROUP BY k) SELECT a.n, c.s FROM a LEFT JOIN c ON a.k = c.k;
WITH a AS (SELECT k FROM bronze.u WHERE lim > 2) SELECT id FROM bronze.t WHERE k IN (SELECT k FROM a) AND n NOT IN (SELECT k FROM a WHERE k IS NOT NULL);

-- Conditions on what is computed of a row's own group, over no rows too.
SELECT id, (SELECT 0.5 * sum(w) FROM bronze.u WHERE u.k = t.k) AS a, (SELECT CAST(sum(lim) / count(*) AS numeric(20,6)) FROM (SELECT k, lim + 0.0 AS lim FROM bronze.u) v WHERE v.k = t.k) AS b FROM bronze.t;
SELECT id, (SELECT coalesce(sum(w), 0) FROM bronze.u WHERE u.k = t.k) AS a, (SELECT CASE WHEN count(*) = 0 THEN 'none' ELSE max(name) END FROM bronze.u WHERE u.k = t.g) AS b FROM bronze.t;
SELECT id, n, (SELECT count(*) AS n FROM bronze.u WHERE u.k = t.k) AS c, (SELECT count(*) FROM bronze.u WHERE u.k = t.k) + 1 AS e FROM bronze.t;
-- Outer columns that are not compared for equality.
SELECT id, (SELECT count(*) FROM bronze.t o WHERE o.k = t.k AND o.id < t.id) AS before, (SELECT sum(o.d) FROM bronze.t o WHERE o.g = t.g AND o.day <= t.day) AS running FROM bronze.t;
SELECT id FROM bronze.t WHERE n > (SELECT max(lim) - 4 FROM bronze.u WHERE u.k < t.k);
SELECT id, (SELECT sum(lim * t.n) + t.g FROM bronze.u WHERE u.k IS NOT DISTINCT FROM t.k) AS a FROM bronze.t;
SELECT id, (SELECT count(*) FROM bronze.t o WHERE o.x >= t.x AND o.k = t.k) AS c FROM bronze.t;
-- Subqueries in aggregates, in groups' conditions and in joins.
SELECT k, sum(n * (SELECT max(lim) FROM bronze.u)) AS a, sum((SELECT max(lim) FROM bronze.u WHERE u.k = t.g)) AS b FROM bronze.t GROUP BY k;
SELECT k, count(*) AS c FROM bronze.t GROUP BY k HAVING count(*) > 4 * (SELECT count(*) FROM bronze.u WHERE u.k = t.k);
SELECT t.id, u.id AS u FROM bronze.t JOIN bronze.u ON u.k = t.k AND u.lim = (SELECT max(v.lim) FROM bronze.u v WHERE v.k = u.k);
-- An aggregate without groups has a row even over no rows.
SELECT id FROM bronze.t WHERE EXISTS (SELECT count(*) FROM bronze.u WHERE u.k = t.k);
SELECT id FROM bronze.t WHERE NOT EXISTS (SELECT sum(lim) FROM bronze.u WHERE u.k = t.k HAVING count(*) > 1);
SELECT id FROM bronze.t WHERE g IN (SELECT count(*) FROM bronze.u WHERE u.k = t.k);
SELECT id FROM bronze.t WHERE g NOT IN (SELECT max(lim) FROM bronze.u WHERE u.k = t.k HAVING count(*) > 1);
-- Outer columns below a derived table.
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM (SELECT lim * 2 AS v FROM bronze.u WHERE u.k = t.k) q WHERE v > t.n);
SELECT id FROM bronze.t WHERE n NOT IN (SELECT lim FROM bronze.u WHERE u.k = t.k);
-- Rows.
SELECT id FROM bronze.t WHERE (k, n) IN (SELECT k, lim FROM bronze.u);
SELECT id FROM bronze.t WHERE (k, n) NOT IN (SELECT k, lim FROM bronze.u);
SELECT id FROM bronze.t WHERE (k, s) IN (SELECT k, name FROM bronze.u WHERE u.lim > t.n) AND NOT ((g, n) IN (SELECT k, n FROM bronze.e));
SELECT id FROM bronze.t WHERE (k, g) IN (SELECT k, max(g) FROM bronze.t GROUP BY k) AND ((k, n) >= (3, 2) OR (k, g) = (1, 1));
SELECT id FROM bronze.t WHERE (k, n) NOT IN ((1, 2), (2, NULL)) AND (g, n) <> (2, 4);
-- Numbers beyond 38 digits meet doubles.
SELECT id, x * 1e300 AS a, -1e300::double precision AS b FROM bronze.t WHERE x < 1e39 AND x > -1e300;
SELECT id, n * 1e3 AS a, d + 1e20 AS b FROM bronze.t;

--! statements aggregates
SELECT k, count(*) AS c, count(n) AS cn, sum(n) AS s FROM bronze.t GROUP BY k;
SELECT k, min(n) AS a, max(n) AS b, min(s) AS c, max(s) AS d, min(day) AS e, max(at) AS f FROM bronze.t GROUP BY k;
SELECT k, min(x) AS a, max(x) AS b, min(d) AS c, max(d) AS e FROM bronze.t GROUP BY k;
SELECT k, sum(d) AS a, sum(d) FILTER (WHERE b) AS c, count(n) FILTER (WHERE n > 2) AS e FROM bronze.t GROUP BY k;
SELECT k, count(*) FILTER (WHERE n > 2) AS e FROM bronze.t GROUP BY k;
SELECT k, sum(x) AS a, avg(x) AS c FROM bronze.t WHERE x < 1000000 GROUP BY k;
SELECT g, sum(x) AS a, avg(x) AS c, max(x) AS e FROM bronze.t GROUP BY g;
SELECT k, g, var_pop(n::double precision) AS a, stddev(n::double precision) AS c FROM bronze.t GROUP BY k, g;
SELECT k, bool_and(b) AS a, bool_or(b) AS c FROM bronze.t GROUP BY k;
SELECT k, count(DISTINCT s) AS a, count(DISTINCT n) AS c, sum(DISTINCT n) AS e FROM bronze.t GROUP BY k;
SELECT k, count(DISTINCT x) AS a FROM bronze.t GROUP BY k;
SELECT count(*) AS a, sum(n) AS b, min(s) AS c, max(x) AS d FROM bronze.t;
SELECT count(*) AS a, sum(n) AS b, max(n) AS c, count(DISTINCT k) AS d FROM bronze.e;
SELECT x, count(*) AS c FROM bronze.t GROUP BY x;
SELECT k + g AS kg, sum(n) * 100 AS s, count(*) + 1 AS c FROM bronze.t GROUP BY k + g;
SELECT k, sum(CASE WHEN b THEN n ELSE 0 END) AS a, sum(CASE WHEN n > 2 THEN d END) AS c FROM bronze.t GROUP BY k;
SELECT k, sum(n) AS s FROM bronze.t GROUP BY k HAVING sum(n) > 5 AND count(*) > 2;
SELECT count(*) AS c FROM bronze.t HAVING count(*) > 100;
SELECT max(c) AS a, min(c) AS b, sum(c)::bigint AS s FROM (SELECT k, count(*) AS c FROM bronze.t GROUP BY k) q;
SELECT c, count(*) AS groups FROM (SELECT k, count(*) AS c FROM bronze.t GROUP BY k) q GROUP BY c;
SELECT k, g, count(*) AS c, max(d) AS m, grouping(k) AS gk FROM bronze.t GROUP BY CUBE (k, g);
SELECT k, s, count(*) AS c FROM bronze.t GROUP BY GROUPING SETS ((k), (s), ());
SELECT k, s, count(*) AS c FROM bronze.t GROUP BY GROUPING SETS ((k), (k, s));
SELECT k, string_agg(s, ',' ORDER BY s, id) AS a FROM bronze.t GROUP BY k;
SELECT k, string_agg(DISTINCT s, ',' ORDER BY s) AS a FROM bronze.t GROUP BY k;
SELECT k, array_agg(n ORDER BY n) AS a FROM bronze.t GROUP BY k;
SELECT k, bit_or(g) AS a, bit_and(g) AS c, bit_xor(id) AS e FROM bronze.t GROUP BY k;
SELECT sum(t.n) AS s, count(u.id) AS c FROM bronze.t FULL JOIN bronze.u ON t.k = u.k;
SELECT u.name, count(t.id) AS c, sum(t.d * u.w) AS s FROM bronze.u LEFT JOIN bronze.t ON t.k = u.k GROUP BY u.name;
SELECT t.k, count(*) AS c, min(u.lim) AS m FROM bronze.t JOIN bronze.u ON t.k = u.k GROUP BY t.k;
SELECT k, max(n) FILTER (WHERE b) AS a, min(s) FILTER (WHERE n > 1) AS c FROM bronze.t GROUP BY k;
-- full: AGGREGATE_WITHOUT_GROUP
SELECT string_agg(s, ',' ORDER BY s, id) AS a FROM bronze.t;
SELECT k, s, string_agg(s, ',' ORDER BY s, id) AS a FROM bronze.t GROUP BY GROUPING SETS ((k), (k, s));

SELECT k, bool_or(id > 0) FILTER (WHERE n < 2) AS a, bit_or(id) FILTER (WHERE n < 2) AS b, string_agg(s, ',' ORDER BY s) FILTER (WHERE n < 2) AS c FROM bronze.t GROUP BY k;
SELECT a, b, c, count(*) AS n FROM (SELECT (n < 2) IS TRUE AS a, (n < 2) IS NOT FALSE AS b, (n < 2) IS UNKNOWN AS c FROM bronze.t) q GROUP BY a, b, c;

--! statements sets
SELECT DISTINCT k, g FROM bronze.t;
SELECT DISTINCT x FROM bronze.t;
SELECT k FROM bronze.t UNION SELECT k FROM bronze.u;
SELECT k FROM bronze.t INTERSECT SELECT k FROM bronze.u;
SELECT k FROM bronze.t EXCEPT SELECT k FROM bronze.u;
SELECT k, s FROM bronze.t EXCEPT SELECT k, name FROM bronze.u;
SELECT k, s FROM bronze.t INTERSECT SELECT k, name FROM bronze.u;
(SELECT k FROM bronze.t UNION ALL SELECT g FROM bronze.t) EXCEPT SELECT k FROM bronze.e;
SELECT k FROM bronze.t EXCEPT (SELECT k FROM bronze.u INTERSECT SELECT k FROM bronze.e);
SELECT k, count(*) AS c FROM (SELECT k FROM bronze.t UNION SELECT k FROM bronze.u) q GROUP BY k;
SELECT s FROM (SELECT DISTINCT k, s FROM bronze.t) q;
-- refused: F0410
SELECT k FROM bronze.t INTERSECT ALL SELECT k FROM bronze.u;
-- refused: F0410
SELECT DISTINCT ON (k) k, id FROM bronze.t ORDER BY k, id;

--! statements windows
SELECT id, row_number() OVER (PARTITION BY k ORDER BY n, id) AS r FROM bronze.t;
SELECT id, rank() OVER (PARTITION BY k ORDER BY g) AS a, dense_rank() OVER (PARTITION BY k ORDER BY g) AS c FROM bronze.t;
SELECT id, sum(n) OVER (PARTITION BY k) AS a, count(*) OVER (PARTITION BY k) AS c FROM bronze.t;
SELECT id, sum(n) OVER (PARTITION BY k ORDER BY id) AS a FROM bronze.t;
SELECT id, lag(n) OVER (PARTITION BY k ORDER BY id) AS a, lead(n, 2) OVER (PARTITION BY k ORDER BY id) AS c FROM bronze.t;
SELECT id, first_value(s) OVER (PARTITION BY k ORDER BY id) AS a, last_value(s) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS c FROM bronze.t;
SELECT id, sum(d) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a FROM bronze.t;
SELECT id, s FROM (SELECT id, s, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS r FROM bronze.t) q WHERE r = 1;
SELECT id, s FROM (SELECT id, s, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS r FROM bronze.t) q WHERE r = 2;
SELECT id FROM (SELECT id, rank() OVER (PARTITION BY k ORDER BY g DESC) AS r FROM bronze.t) q WHERE r <= 2;
SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS a, count(*) OVER (PARTITION BY k, g) AS c FROM bronze.t;
SELECT k, c, rank() OVER (PARTITION BY k ORDER BY c DESC) AS r FROM (SELECT k, g, count(*) AS c FROM bronze.t GROUP BY k, g) q;
SELECT t.id, u.id AS other, row_number() OVER (PARTITION BY t.k ORDER BY u.lim, t.id, u.id) AS r FROM bronze.t JOIN bronze.u ON t.k = u.k;
SELECT id, sum(n) OVER (PARTITION BY k ORDER BY n RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a FROM bronze.t;
-- full: WINDOW_WITHOUT_PARTITION
SELECT id, row_number() OVER (ORDER BY n, id) AS r FROM bronze.t;
SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS a, row_number() OVER (PARTITION BY g ORDER BY id) AS c FROM bronze.t;
-- full: WINDOW_WITHOUT_PARTITION
SELECT k, sum(n) AS s, rank() OVER (ORDER BY sum(n) DESC) AS r FROM bronze.t GROUP BY k;

SELECT id, sum(n) OVER (w ORDER BY id) AS a, count(*) OVER w AS c FROM bronze.t WINDOW w AS (PARTITION BY k);
SELECT k, g, sum(d) AS s, rank() OVER (PARTITION BY k ORDER BY sum(d) DESC) AS r FROM bronze.t GROUP BY ROLLUP (k, g);

--! statements limits
SELECT id, n FROM bronze.t ORDER BY n DESC, id LIMIT 7;
SELECT id, n FROM bronze.t ORDER BY n, id LIMIT 5 OFFSET 3;
SELECT s FROM bronze.t ORDER BY s DESC LIMIT 20;
SELECT k, c FROM (SELECT k, count(*) AS c FROM bronze.t GROUP BY k) q ORDER BY c DESC, k LIMIT 2;
SELECT count(*) AS a, sum(n) AS b FROM (SELECT n FROM bronze.t ORDER BY n LIMIT 20) q;
SELECT t.id, u.id AS other FROM bronze.t JOIN bronze.u ON t.k = u.k ORDER BY u.lim DESC, t.id, u.id LIMIT 9;
SELECT id FROM bronze.t WHERE k IN (SELECT k FROM bronze.u ORDER BY lim DESC, k, id LIMIT 4);
SELECT id FROM bronze.t ORDER BY id LIMIT 0;
SELECT n, count(*) AS c FROM bronze.t GROUP BY n ORDER BY n DESC NULLS LAST LIMIT 3;
(SELECT id, 'low' AS w FROM bronze.t ORDER BY n, id LIMIT 3) UNION ALL (SELECT id, 'high' FROM bronze.t ORDER BY n DESC NULLS LAST, id LIMIT 3);
-- full: OFFSET_WITHOUT_LIMIT
SELECT id FROM bronze.t ORDER BY n, id OFFSET 10;

SELECT id, n FROM bronze.t ORDER BY n DESC, id FETCH FIRST 4 ROWS ONLY;

--! statements refusals
-- refused: NON_DETERMINISTIC_FUNCTION
SELECT id, now() AS moment FROM bronze.t;
-- refused: AGGREGATE_NOT_EXACT
SELECT k, corr(x, x) AS c FROM bronze.t GROUP BY k;
-- refused: CORRELATED_NOT_IN
SELECT t.id FROM bronze.t JOIN bronze.e ON e.k = t.k WHERE t.n NOT IN (SELECT n FROM bronze.t WHERE g = e.n);
-- refused: IN_SUBQUERY_POSITION
SELECT id, k IN (SELECT k FROM bronze.u) AS a FROM bronze.t;
-- refused: NUMBER_TOO_WIDE
SELECT id FROM bronze.t WHERE d < 1e300;
-- refused: EXISTS_POSITION
SELECT id, EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k) AS a FROM bronze.t;
-- refused: SCALAR_SUBQUERY_MANY_ROWS
SELECT id, (SELECT lim FROM bronze.u WHERE u.id = t.id) AS a FROM bronze.t;
-- refused: CORRELATED_SUBQUERY
SELECT id FROM bronze.t WHERE EXISTS (SELECT 1 FROM bronze.u WHERE u.k = t.k LIMIT 1);
-- refused: QUOTIENT_NOT_CAST
SELECT k FROM bronze.t GROUP BY k HAVING avg(n) > 2;
-- refused: FUNCTION_NOT_JUDGED
SELECT to_char(day, 'YYYY') AS y FROM bronze.t;
