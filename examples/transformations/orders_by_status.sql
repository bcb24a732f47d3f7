-- Orders and their value by status, kept fresh by the service.
CREATE DYNAMIC TABLE silver.orders_by_status
  LAG = '1 minute'
AS
SELECT status,
       COUNT(*) AS orders,
       SUM(amount) AS amount
FROM bronze.orders
GROUP BY status;
