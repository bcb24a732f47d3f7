-- TPC-H's 22 queries at a very small scale, with refresh functions like RF1 and RF2 as steps.
-- Means and ratios are cast as this dialect asks; EXTRACT and INTERVAL are PostgreSQL's.
--! schema
CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name text);
CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text, n_regionkey int);
CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name text, s_address text, s_nationkey int, s_phone text, s_acctbal numeric(12,2), s_comment text);
CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name text, c_address text, c_nationkey int, c_phone text, c_acctbal numeric(12,2), c_mktsegment text, c_comment text);
CREATE TABLE part (p_partkey int PRIMARY KEY, p_name text, p_mfgr text, p_brand text, p_type text, p_size int, p_container text, p_retailprice numeric(12,2));
CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost numeric(12,2), PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int, o_orderstatus text, o_totalprice numeric(12,2), o_orderdate date, o_orderpriority text, o_shippriority int, o_comment text);
CREATE TABLE lineitem (l_orderkey int, l_linenumber int, l_partkey int, l_suppkey int, l_quantity numeric(12,2), l_extendedprice numeric(12,2), l_discount numeric(12,2), l_tax numeric(12,2), l_returnflag text, l_linestatus text, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, PRIMARY KEY (l_orderkey, l_linenumber));
INSERT INTO region SELECT i, (ARRAY['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'])[1 + i] FROM generate_series(0, 4) i;
INSERT INTO nation SELECT i, (ARRAY['FRANCE', 'GERMANY', 'BRAZIL', 'SAUDI ARABIA', 'CANADA', 'CHINA', 'INDIA', 'KENYA', 'JAPAN', 'RUSSIA'])[1 + i], (ARRAY[3, 3, 1, 4, 1, 2, 2, 0, 2, 3])[1 + i] FROM generate_series(0, 9) i;
INSERT INTO supplier SELECT i, 'Supplier ' || i, 'street ' || i, i % 10, 10 + i % 10 || '-555', i * 137.5 - 200, CASE WHEN i % 6 = 0 THEN 'Customer of Complaints' ELSE 'quick' END FROM generate_series(1, 20) i;
INSERT INTO customer SELECT i, 'Customer ' || i, 'street ' || i, i * 7 % 10, (ARRAY['13', '31', '23', '29', '30', '18', '17', '40'])[1 + i % 8] || '-555', i * 97 % 1000 - 100, (ARRAY['BUILDING', 'MACHINERY', 'AUTOMOBILE'])[1 + i % 3], 'c' || i FROM generate_series(1, 60) i;
INSERT INTO part SELECT i, (ARRAY['green ', 'forest ', 'red '])[1 + i % 3] || i, 'MFGR ' || i % 5, 'Brand#' || 10 + i % 4, (ARRAY['ECONOMY ANODIZED STEEL', 'PROMO BRUSHED BRASS', 'MEDIUM POLISHED TIN', 'PROMO PLATED STEEL'])[1 + i % 4], i % 15 + 1, (ARRAY['SM CASE', 'MED BOX', 'LG BOX', 'MED BAG'])[1 + i / 2 % 4], 900 + i FROM generate_series(1, 40) i;
INSERT INTO partsupp SELECT p, 1 + (p + j * 5) % 20, p * 31 % 500, 10 + p * j % 90 FROM generate_series(1, 40) p, generate_series(0, 2) j;
INSERT INTO orders SELECT i, 1 + i * 13 % 55, (ARRAY['F', 'O', 'P'])[1 + i % 3], i * 411 % 90000 + 0.5, '1993-01-01'::date + i * 17 % 1800, (ARRAY['1-URGENT', '2-HIGH', '3-MEDIUM', '5-LOW'])[1 + i % 4], 0, CASE WHEN i % 9 = 0 THEN 'special requests' ELSE 'usual' END FROM generate_series(1, 240) i;
INSERT INTO lineitem SELECT o, j, p, 1 + (p + j * 5) % 20, 1 + (o * j * 7) % 49, 1000 + o * j % 300, (o + j) % 11 / 100.0, o % 8 / 100.0, (ARRAY['R', 'A', 'N'])[1 + (o + j) % 3], (ARRAY['O', 'F'])[1 + o % 2], d + 10 + j * 3, d + 20 + o % 20, d + 15 + j * 8 + o % 7, (ARRAY['DELIVER IN PERSON', 'NONE'])[1 + o % 2], (ARRAY['MAIL', 'SHIP', 'AIR', 'AIR REG', 'TRUCK'])[1 + (o + j) % 5] FROM (SELECT o_orderkey AS o, o_orderdate AS d, j, 1 + (o_orderkey * 3 + j * 11) % 40 AS p FROM orders, generate_series(1, 4) j) q;

--! step RF1, new orders with their lines
INSERT INTO orders SELECT i, 1 + i % 60, 'F', i * 1.5, '1993-10-01'::date + i * 13 % 900, '1-URGENT', 0, 'usual' FROM generate_series(301, 330) i;
INSERT INTO lineitem SELECT o, j, 1 + (o + j) % 40, 1 + (o + j * 2) % 20, 45 + j, 1500 + o, 0.06, 0.02, 'R', 'F', d + 5, d + 12, d + 18 + j, 'DELIVER IN PERSON', 'AIR' FROM (SELECT o_orderkey AS o, o_orderdate AS d, j FROM orders, generate_series(1, 7) j WHERE o_orderkey > 300) q;
--! step RF2, old orders go with their lines, dimensions change with their facts
DELETE FROM lineitem WHERE l_orderkey % 8 = 3;
DELETE FROM orders WHERE o_orderkey % 8 = 3;
UPDATE nation SET n_name = 'FRANCE' WHERE n_nationkey = 4;
UPDATE supplier SET s_acctbal = s_acctbal + 500, s_nationkey = 3 WHERE s_suppkey % 5 = 1;
UPDATE customer SET c_mktsegment = 'BUILDING' WHERE c_custkey % 4 = 2;
DELETE FROM customer WHERE c_custkey IN (3, 17, 40);
UPDATE partsupp SET ps_supplycost = ps_supplycost + 1, ps_availqty = 0 WHERE ps_suppkey = 7;
UPDATE part SET p_brand = 'Brand#12', p_container = 'SM CASE', p_size = 3 WHERE p_partkey % 10 = 1;
DELETE FROM lineitem WHERE l_partkey = 9;
UPDATE lineitem SET l_discount = 0.06, l_quantity = 5 WHERE l_orderkey % 9 = 1;
--! step a region is emptied
DELETE FROM supplier WHERE s_nationkey IN (0, 1);
DELETE FROM nation WHERE n_regionkey = 3;
--! step and comes back
INSERT INTO nation VALUES (0, 'GERMANY', 3), (1, 'FRANCE', 3), (9, 'RUSSIA', 3);
INSERT INTO supplier SELECT i, 'Supplier ' || i, 's', i % 2, '13', i, 'again' FROM generate_series(21, 30) i;
UPDATE partsupp SET ps_suppkey = ps_suppkey + 20 WHERE ps_suppkey < 8;

--! statements queries
-- Q1
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price, sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, CAST(sum(l_quantity) / count(*) AS numeric(20,4)) AS avg_qty, CAST(sum(l_discount) / count(*) AS numeric(20,4)) AS avg_disc, count(*) AS count_order FROM bronze.lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90 days' GROUP BY l_returnflag, l_linestatus;
-- Q2
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment FROM bronze.part, bronze.supplier, bronze.partsupp, bronze.nation, bronze.region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size > 5 AND p_type LIKE '%STEEL' AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE' AND ps_supplycost = (SELECT min(ps_supplycost) FROM bronze.partsupp, bronze.supplier, bronze.nation, bronze.region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE') ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100;
-- Q3
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority FROM bronze.customer, bronze.orders, bronze.lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1994-03-15' GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10;
-- Q4
SELECT o_orderpriority, count(*) AS order_count FROM bronze.orders WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '12 months' AND EXISTS (SELECT * FROM bronze.lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority;
-- Q5
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM bronze.customer, bronze.orders, bronze.lineitem, bronze.supplier, bronze.nation, bronze.region WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' AND o_orderdate >= DATE '1993-01-01' AND o_orderdate < DATE '1993-01-01' + INTERVAL '3 years' GROUP BY n_name;
-- Q6
SELECT sum(l_extendedprice * l_discount) AS revenue FROM bronze.lineitem WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1 year' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24;
-- Q7
SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, extract(year FROM l_shipdate)::int AS l_year, l_extendedprice * (1 - l_discount) AS volume FROM bronze.supplier, bronze.lineitem, bronze.orders, bronze.customer, bronze.nation n1, bronze.nation n2 WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')) AND l_shipdate BETWEEN DATE '1993-01-01' AND DATE '1998-12-31') shipping GROUP BY supp_nation, cust_nation, l_year;
-- Q8
SELECT o_year, CAST(sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS numeric(20,6)) AS mkt_share FROM (SELECT extract(year FROM o_orderdate)::int AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation FROM bronze.part, bronze.supplier, bronze.lineitem, bronze.orders, bronze.customer, bronze.nation n1, bronze.nation n2, bronze.region WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN DATE '1993-01-01' AND DATE '1997-12-31' AND p_type = 'ECONOMY ANODIZED STEEL') all_nations GROUP BY o_year;
-- Q9
SELECT nation, o_year, sum(amount) AS sum_profit FROM (SELECT n_name AS nation, extract(year FROM o_orderdate)::int AS o_year, l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount FROM bronze.part, bronze.supplier, bronze.lineitem, bronze.partsupp, bronze.orders, bronze.nation WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') profit GROUP BY nation, o_year;
-- Q10
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment FROM bronze.customer, bronze.orders, bronze.lineitem, bronze.nation WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1993-10-01' + INTERVAL '9 months' AND l_returnflag = 'R' AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment ORDER BY revenue DESC, c_custkey LIMIT 20;
-- Q11
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM bronze.partsupp, bronze.supplier, bronze.nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY' GROUP BY ps_partkey HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.05 FROM bronze.partsupp, bronze.supplier, bronze.nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY');
-- Q12
SELECT l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count, sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count FROM bronze.orders, bronze.lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1994-01-01' + INTERVAL '1 year' GROUP BY l_shipmode;
-- Q13
SELECT c_count, count(*) AS custdist FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM bronze.customer LEFT OUTER JOIN bronze.orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey) c_orders GROUP BY c_count;
-- Q14
SELECT CAST(100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / sum(l_extendedprice * (1 - l_discount)) AS numeric(20,6)) AS promo_revenue FROM bronze.lineitem, bronze.part WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-09-01' + INTERVAL '1 month';
-- Q15
WITH revenue AS (SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue FROM bronze.lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL '3 months' GROUP BY l_suppkey) SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM bronze.supplier, revenue WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue);
-- Q16
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt FROM bronze.partsupp, bronze.part WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#13' AND p_type NOT LIKE 'MEDIUM POLISHED%' AND p_size IN (3, 4, 9, 14, 6) AND ps_suppkey NOT IN (SELECT s_suppkey FROM bronze.supplier WHERE s_comment LIKE '%Customer%Complaints%') GROUP BY p_brand, p_type, p_size;
-- Q17
SELECT CAST(sum(l_extendedprice) / 7.0 AS numeric(20,6)) AS avg_yearly FROM bronze.lineitem, bronze.part WHERE p_partkey = l_partkey AND p_brand = 'Brand#12' AND l_quantity < (SELECT CAST(0.8 * sum(l_quantity) / count(*) AS numeric(20,6)) FROM bronze.lineitem WHERE l_partkey = p_partkey);
-- Q17 with the factor outside the subquery
SELECT CAST(sum(l_extendedprice) / 7.0 AS numeric(20,6)) AS avg_yearly FROM bronze.lineitem, bronze.part WHERE p_partkey = l_partkey AND p_brand = 'Brand#12' AND l_quantity < 0.8 * (SELECT CAST(sum(l_quantity) / count(*) AS numeric(20,6)) FROM bronze.lineitem WHERE l_partkey = p_partkey);
-- Q17 with a join
SELECT CAST(sum(l_extendedprice) / 7.0 AS numeric(20,6)) AS avg_yearly FROM bronze.lineitem JOIN bronze.part ON p_partkey = l_partkey JOIN (SELECT l_partkey AS pk, CAST(0.8 * sum(l_quantity) / count(*) AS numeric(20,6)) AS few FROM bronze.lineitem GROUP BY l_partkey) q ON pk = p_partkey WHERE p_brand = 'Brand#12' AND l_quantity < few;
-- Q18
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity FROM bronze.customer, bronze.orders, bronze.lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM bronze.lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 100) AND c_custkey = o_custkey AND o_orderkey = l_orderkey GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100;
-- Q19
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM bronze.lineitem, bronze.part WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX') AND l_quantity >= 1 AND l_quantity <= 41 AND p_size BETWEEN 1 AND 5 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON') OR (p_partkey = l_partkey AND p_brand = 'Brand#11' AND p_container IN ('MED BAG', 'MED BOX') AND l_quantity >= 10 AND l_quantity <= 50 AND p_size BETWEEN 1 AND 10 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON');
-- Q20
SELECT s_name, s_address FROM bronze.supplier, bronze.nation WHERE s_suppkey IN (SELECT ps_suppkey FROM bronze.partsupp WHERE ps_partkey IN (SELECT p_partkey FROM bronze.part WHERE p_name LIKE 'forest%') AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM bronze.lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '3 years')) AND s_nationkey = n_nationkey AND n_name = 'CANADA';
-- Q20 with the factor outside the subquery
SELECT s_name, s_address FROM bronze.supplier, bronze.nation WHERE s_suppkey IN (SELECT ps_suppkey FROM bronze.partsupp WHERE ps_partkey IN (SELECT p_partkey FROM bronze.part WHERE p_name LIKE 'forest%') AND ps_availqty > 0.5 * (SELECT sum(l_quantity) FROM bronze.lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '3 years')) AND s_nationkey = n_nationkey AND n_name = 'CANADA';
-- Q21
SELECT s_name, count(*) AS numwait FROM bronze.supplier, bronze.lineitem l1, bronze.orders, bronze.nation WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate AND EXISTS (SELECT * FROM bronze.lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) AND NOT EXISTS (SELECT * FROM bronze.lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate) AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA' GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100;
-- Q22
SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM (SELECT substring(c_phone FROM 1 FOR 2) AS cntrycode, c_acctbal FROM bronze.customer WHERE substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29', '30', '18', '17') AND c_acctbal > (SELECT CAST(sum(c_acctbal) / count(*) AS numeric(20,6)) FROM bronze.customer WHERE c_acctbal > 0.00 AND substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29', '30', '18', '17')) AND NOT EXISTS (SELECT * FROM bronze.orders WHERE o_custkey = c_custkey)) custsale GROUP BY cntrycode;
