-- The charges in the columns of FOCUS 1.2 (https://focus.finops.org), for tools that take bills of clouds.

-- VIEW chargeback: one row for each charge of a UTC day.
SELECT
  billed_cost AS BilledCost, billed_cost AS EffectiveCost, list_cost AS ListCost,
  contracted_cost AS ContractedCost, cluster AS BillingAccountId, cluster AS BillingAccountName,
  queue AS SubAccountId, queue AS SubAccountName, g.currency AS BillingCurrency,
  DATE_TRUNC('month', CAST(utc_day AS TIMESTAMP)) AS BillingPeriodStart,
  DATE_TRUNC('month', CAST(utc_day AS TIMESTAMP)) + INTERVAL 1 MONTH AS BillingPeriodEnd,
  CAST(utc_day AS TIMESTAMP) AS ChargePeriodStart, CAST(utc_day AS TIMESTAMP) + INTERVAL 1 DAY AS ChargePeriodEnd,
  'Usage' AS ChargeCategory, CAST(NULL AS STRING) AS ChargeClass,
  CASE WHEN category = 'idle' THEN CONCAT('Idle time of ', model)
    ELSE CONCAT('Share of ', model, ', ', category) END AS ChargeDescription,
  'Usage-Based' AS ChargeFrequency,
  charged_card_hours AS ConsumedQuantity, 'Card-Hours' AS ConsumedUnit,
  charged_card_hours AS PricingQuantity, 'Card-Hours' AS PricingUnit, 'Standard' AS PricingCategory,
  'vc-egpu' AS Provider, 'vc-egpu' AS Publisher, 'vc-egpu' AS InvoiceIssuer,
  'Compute' AS ServiceCategory, 'Containers' AS ServiceSubcategory, 'vc-egpu' AS ServiceName,
  CASE WHEN category = 'idle' THEN NULL ELSE CONCAT(namespace, '/', gang) END AS ResourceId,
  CASE WHEN category = 'idle' THEN NULL ELSE service END AS ResourceName,
  CASE WHEN category = 'idle' THEN NULL ELSE 'GPU share' END AS ResourceType,
  CAST(NULL AS STRING) AS RegionId, model AS SkuId, CONCAT(model, '/', billing, '/', category) AS SkuPriceId,
  list_unit_price AS ListUnitPrice, contracted_unit_price AS ContractedUnitPrice,
  CONCAT('{"namespace":"', namespace, '","class":"', class, '","gang":"',
    REPLACE(REPLACE(gang, CHR(92), CONCAT(CHR(92), CHR(92))), CHR(34), CONCAT(CHR(92), CHR(34))), '"}') AS Tags
FROM charges CROSS JOIN settings g
ORDER BY utc_day, cluster, queue, namespace, gang, model, category, class, billing;
