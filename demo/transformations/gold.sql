-- Quality by station and day: what the operations desk watches.
CREATE DYNAMIC TABLE gold.delivery_quality_daily AS
SELECT station,
       CAST(delivered_at AS DATE) AS day,
       count(*) AS deliveries,
       sum(CASE WHEN late THEN 1 ELSE 0 END) AS late,
       sum(CASE WHEN defects > 0 THEN 1 ELSE 0 END) AS with_defects,
       sum(weight_kg) AS weight_kg
FROM silver.delivery
GROUP BY station, CAST(delivered_at AS DATE);

-- Quality by associate, over all days.
CREATE DYNAMIC TABLE gold.associate_quality AS
SELECT associate,
       count(*) AS deliveries,
       sum(CASE WHEN late THEN 1 ELSE 0 END) AS late,
       sum(defects) AS defects
FROM silver.delivery
GROUP BY associate;
