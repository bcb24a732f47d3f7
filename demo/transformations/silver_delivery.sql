-- One row per delivery with everything known about it, late reports included.
CREATE DYNAMIC TABLE silver.delivery AS
SELECT d.package_id,
       a.name AS associate,
       r.station,
       p.weight_kg,
       d.delivered_at,
       d.delivered_at > p.promised_at AS late,
       count(f.id) AS defects
FROM bronze.deliveries d
JOIN bronze.packages p ON p.id = d.package_id
JOIN bronze.routes r ON r.id = p.route_id
JOIN bronze.associates a ON a.id = d.associate_id
LEFT JOIN bronze.defect_reports f ON f.package_id = d.package_id
GROUP BY d.package_id, a.name, r.station, p.weight_kg, d.delivered_at, p.promised_at;
