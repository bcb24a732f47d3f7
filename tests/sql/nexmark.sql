-- Joins, windows and top-k as Nexmark has them, over tables that also lose rows.
--! schema
CREATE TABLE person (id int PRIMARY KEY, name text, city text, state text, at timestamp);
CREATE TABLE auction (id int PRIMARY KEY, item text, category int, seller int, reserve int, opened timestamp, expires timestamp);
CREATE TABLE bid (id int PRIMARY KEY, auction int, bidder int, price int, channel text, at timestamp);
INSERT INTO person SELECT i, 'person ' || i, (ARRAY['Bend', 'Boise', 'Phoenix'])[1 + i % 3], (ARRAY['OR', 'ID', 'AZ', 'CA'])[1 + i % 4], '2024-01-01'::timestamp + i * interval '11 minutes' FROM generate_series(1, 40) i;
INSERT INTO auction SELECT i, 'item ' || i, 10 + i % 4, 1 + i * 7 % 45, i * 5, '2024-01-01'::timestamp + i * interval '5 minutes', '2024-01-01'::timestamp + i * interval '5 minutes' + interval '3 hours' FROM generate_series(1, 60) i;
INSERT INTO bid SELECT i, 1 + i * 13 % 65, 1 + i * 3 % 42, 100 + i * 37 % 400, (ARRAY['Google', 'Apple', NULL])[1 + i % 3], '2024-01-01'::timestamp + i * interval '2 minutes' FROM generate_series(1, 250) i;

--! step bids and new people, the highest are withdrawn
INSERT INTO bid SELECT i, 1 + i % 60, 1 + i % 44, 100 + i % 500, 'Baidu', '2024-01-01 03:00:00'::timestamp + (i - 300) * interval '90 seconds' FROM generate_series(301, 340) i;
INSERT INTO person VALUES (41, 'person 41', 'Bend', 'OR', '2024-01-01 05:00:00'), (42, 'person 42', NULL, NULL, NULL);
DELETE FROM bid WHERE price > 450;
UPDATE auction SET category = 10 WHERE id % 9 = 4;
--! step sellers move, their auctions are closed in the same transaction
UPDATE person SET state = 'OR' WHERE id % 7 = 2;
DELETE FROM auction WHERE seller IN (8, 15);
UPDATE auction SET seller = 8 WHERE seller = 22;
DELETE FROM person WHERE id = 22;
UPDATE bid SET auction = auction + 1, price = price + 3 WHERE id % 10 = 0;
--! step all bids go
DELETE FROM bid;
--! step and come again
INSERT INTO bid SELECT i, 1 + i % 30, 1 + i % 10, i % 7 * 50, 'Apple', '2024-01-02'::timestamp + i * interval '1 minute' FROM generate_series(1, 100) i;

--! statements queries
-- q1, currency
SELECT auction, bidder, CAST(price * 0.908 AS numeric(12,3)) AS price, at FROM bronze.bid;
-- q2, selection
SELECT auction, price FROM bronze.bid WHERE auction % 5 = 0;
-- q3, local items
SELECT p.name, p.city, p.state, a.id FROM bronze.auction a JOIN bronze.person p ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
-- q4, mean closing price per category
SELECT category, CAST(CAST(sum(final) AS numeric(38,0)) / count(*) AS numeric(20,4)) AS mean FROM (SELECT a.id, a.category, max(b.price) AS final FROM bronze.auction a JOIN bronze.bid b ON a.id = b.auction AND b.at BETWEEN a.opened AND a.expires GROUP BY a.id, a.category) q GROUP BY category;
-- q5, hot items per hour
SELECT c.auction, c.num, c.hour FROM (SELECT auction, count(*) AS num, date_trunc('hour', at) AS hour FROM bronze.bid GROUP BY auction, date_trunc('hour', at)) c JOIN (SELECT max(num) AS most, hour FROM (SELECT count(*) AS num, date_trunc('hour', at) AS hour FROM bronze.bid GROUP BY auction, date_trunc('hour', at)) n GROUP BY hour) m ON c.hour = m.hour AND c.num >= m.most;
-- q6, mean of a seller's last ten closing prices
SELECT seller, id, sum(final) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS total FROM (SELECT a.id, a.seller, max(b.price) AS final FROM bronze.auction a JOIN bronze.bid b ON a.id = b.auction GROUP BY a.id, a.seller) q;
-- q7, highest bid per hour
SELECT b.auction, b.price, b.bidder, b.at FROM bronze.bid b JOIN (SELECT max(price) AS most, date_trunc('hour', at) AS hour FROM bronze.bid GROUP BY date_trunc('hour', at)) m ON b.price = m.most AND date_trunc('hour', b.at) = m.hour;
-- q8, new users who open auctions
SELECT DISTINCT p.id, p.name, date_trunc('hour', p.at) AS hour FROM bronze.person p JOIN bronze.auction a ON p.id = a.seller AND date_trunc('hour', p.at) = date_trunc('hour', a.opened);
-- q9, winning bids
SELECT id, item, category, seller, price, bidder FROM (SELECT a.id, a.item, a.category, a.seller, b.price, b.bidder, row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at, b.id) AS r FROM bronze.auction a JOIN bronze.bid b ON a.id = b.auction) q WHERE r <= 1;
-- q10, all bids by day
SELECT auction, bidder, price, at, CAST(at AS date) AS day FROM bronze.bid;
-- q12, bids per bidder
SELECT bidder, count(*) AS bids FROM bronze.bid GROUP BY bidder;
-- q13, a side input
SELECT b.id, b.price, p.name FROM bronze.bid b LEFT JOIN bronze.person p ON b.bidder = p.id;
-- q14, classes
SELECT auction, CASE WHEN extract(hour FROM at) >= 3 AND extract(hour FROM at) <= 6 THEN 'day' ELSE 'night' END AS kind, length(channel) AS c FROM bronze.bid WHERE price > 120;
-- q15, counts per day with DISTINCT and FILTER
SELECT CAST(at AS date) AS day, count(*) AS total, count(*) FILTER (WHERE price < 200) AS low, count(DISTINCT bidder) AS bidders, count(DISTINCT bidder) FILTER (WHERE price >= 200) AS high FROM bronze.bid GROUP BY CAST(at AS date);
-- q16, the same per channel
SELECT channel, CAST(at AS date) AS day, max(at) AS last, count(DISTINCT auction) AS auctions FROM bronze.bid GROUP BY channel, CAST(at AS date);
-- q17, statistics of auctions
SELECT auction, CAST(at AS date) AS day, count(*) AS bids, min(price) AS least, max(price) AS most, sum(price) AS total FROM bronze.bid GROUP BY auction, CAST(at AS date);
-- q18, last bid of each bidder in each auction
SELECT id, auction, bidder, price FROM (SELECT id, auction, bidder, price, row_number() OVER (PARTITION BY bidder, auction ORDER BY at DESC, id) AS r FROM bronze.bid) q WHERE r = 1;
-- q19, ten best bids of each auction
SELECT id, auction, price, r FROM (SELECT id, auction, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC, id) AS r FROM bronze.bid) q WHERE r <= 10;
-- q20, bids with their auctions
SELECT b.id, b.price, a.item, a.category FROM bronze.bid b JOIN bronze.auction a ON b.auction = a.id WHERE a.category = 10;
-- q22, parts of a text
SELECT auction, split_part(channel, 'o', 1) AS a, upper(channel) AS c FROM bronze.bid;
-- The three auctions with the most bids
SELECT auction, count(*) AS bids FROM bronze.bid GROUP BY auction ORDER BY bids DESC, auction LIMIT 3;
-- Ties at the boundary
SELECT price FROM bronze.bid ORDER BY price DESC LIMIT 10;
-- Sellers without bids
SELECT p.id FROM bronze.person p WHERE NOT EXISTS (SELECT 1 FROM bronze.auction a JOIN bronze.bid b ON b.auction = a.id WHERE a.seller = p.id);
-- Who bid on their own auction
SELECT DISTINCT b.bidder FROM bronze.bid b WHERE b.auction IN (SELECT id FROM bronze.auction WHERE seller = b.bidder);
-- Change from the bid before
SELECT id, price - lag(price) OVER (PARTITION BY auction ORDER BY at, id) AS change FROM bronze.bid;
-- Standing within a category
SELECT id, rank() OVER (PARTITION BY category ORDER BY reserve DESC) AS r FROM bronze.auction;
