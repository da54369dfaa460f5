-- Charges: a share pays its part of a card for the time that it held it. What nobody holds is a row `__idle__`.
-- Parts that sum up above one card are scaled down, those of low first. So charges and idle time are all card-hours.

-- VIEW charge_hours: by share and hour: the seconds of a card that it pays for, and how it held them.
SELECT
  h.cluster, h.tenant, h.queue, h.namespace, h.gang, h.service, h.model, h.node, h.class, h.utc_day,
  CASE
    WHEN h.class = 'low' THEN 'low'
    WHEN k.promised_seconds > k.seconds THEN 'oversold'
    WHEN h.part >= 1.0 THEN 'reserved'
    ELSE 'shared'
  END AS category,
  h.part * h.active_seconds AS requested_seconds,
  h.part * h.active_seconds * CASE
    WHEN h.class = 'low' THEN CASE WHEN k.low_seconds > 0.0
      THEN LEAST(1.0, GREATEST(k.seconds - k.first_seconds, 0.0) / k.low_seconds) ELSE 0.0 END
    ELSE CASE WHEN k.first_seconds > 0.0 THEN LEAST(1.0, k.seconds / k.first_seconds) ELSE 0.0 END
  END AS charged_seconds,
  h.part * h.suspended_seconds AS suspended_seconds,
  COALESCE(h.compute_used_seconds, 0.0) AS compute_used_seconds,
  COALESCE(h.memory_used_mean_bytes, 0.0) / h.card_memory_bytes * h.active_seconds AS memory_used_seconds
FROM share_hours h
JOIN card_hours k ON k.cluster = h.cluster AND k.uuid = h.uuid AND k.hour_index = h.hour_index
UNION ALL
SELECT k.cluster, '__idle__', '__idle__', '', '', '', k.model, k.node, '', c.utc_day, 'idle', 0.0,
  GREATEST(k.seconds - k.first_seconds - k.low_seconds, 0.0), 0.0, 0.0, 0.0
FROM card_hours k JOIN calendar c ON c.hour_index = k.hour_index;

-- TABLE charges: by day and job, with the price of an hour of the card in the billing of its node.
SELECT
  h.cluster, h.tenant, h.queue, h.namespace, h.gang, h.service, h.model, h.class, h.category, b.billing, h.utc_day,
  SUM(h.requested_seconds) / 3600.0 AS requested_card_hours, SUM(h.charged_seconds) / 3600.0 AS charged_card_hours,
  SUM(h.suspended_seconds) / 3600.0 AS suspended_card_hours,
  SUM(h.compute_used_seconds) / 3600.0 AS compute_used_card_hours,
  SUM(h.memory_used_seconds) / 3600.0 AS memory_used_card_hours,
  MAX(p.list_price) AS list_unit_price, MAX(p.contracted_price) AS contracted_unit_price, MAX(p.rate) AS rate,
  SUM(h.charged_seconds) / 3600.0 * MAX(p.list_price) AS list_cost,
  SUM(h.charged_seconds) / 3600.0 * MAX(p.contracted_price) AS contracted_cost,
  SUM(h.charged_seconds) / 3600.0 * MAX(p.contracted_price) * MAX(p.rate)
    + SUM(h.suspended_seconds) / 3600.0 * MAX(p.contracted_price) * MAX(p.suspended_rate) AS billed_cost
FROM charge_hours h
JOIN billings b ON b.cluster = h.cluster AND b.node = h.node
JOIN prices p ON p.model = h.model AND p.billing = b.billing AND p.category = h.category
GROUP BY h.cluster, h.tenant, h.queue, h.namespace, h.gang, h.service, h.model, h.class, h.category, b.billing, h.utc_day
HAVING SUM(h.charged_seconds) > 0.0 OR SUM(h.requested_seconds) > 0.0 OR SUM(h.suspended_seconds) > 0.0
ORDER BY h.utc_day, h.cluster, h.queue, h.namespace, h.gang, h.model, h.class, h.category, b.billing;

-- TABLE showback: by tenant, queue, model and service over the whole window.
SELECT
  cluster, tenant, queue, model, namespace, service,
  SUM(requested_card_hours) AS requested_card_hours, SUM(charged_card_hours) AS charged_card_hours,
  SUM(suspended_card_hours) AS suspended_card_hours, SUM(compute_used_card_hours) AS compute_used_card_hours,
  SUM(memory_used_card_hours) AS memory_used_card_hours, SUM(list_cost) AS list_cost,
  SUM(contracted_cost) AS contracted_cost, SUM(billed_cost) AS billed_cost
FROM charges
GROUP BY cluster, tenant, queue, model, namespace, service
ORDER BY charged_card_hours DESC, cluster, tenant, queue, model, namespace, service;
