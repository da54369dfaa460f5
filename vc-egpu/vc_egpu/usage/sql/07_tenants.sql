-- Queues: what they used of what they deserved, how long gangs waited, and who was evicted and why.

-- TABLE queue_shares: by queue and resource, means over the hours that were seen.
SELECT q.cluster, COALESCE(t.tenant, q.queue) AS tenant, q.queue, q.resource,
  AVG(q.used) AS used, AVG(q.deserved) AS deserved, AVG(q.guarantee) AS guarantee, AVG(q.capability) AS capability,
  AVG(q.waiting) AS waiting,
  CASE WHEN SUM(CASE WHEN q.deserved > 0.0 THEN q.deserved END) > 0.0
    THEN SUM(CASE WHEN q.deserved > 0.0 THEN q.used END) / SUM(CASE WHEN q.deserved > 0.0 THEN q.deserved END)
  END AS used_of_deserved_ratio,
  SUM(CASE WHEN q.deserved > 0.0 AND q.used > q.deserved THEN 1 ELSE 0 END) AS hours_above_deserved,
  SUM(CASE WHEN q.deserved > 0.0 AND q.used < q.deserved AND q.waiting > 0.0 THEN 1 ELSE 0 END)
    AS hours_below_deserved_and_waiting,
  COUNT(*) AS hours_seen
FROM queue_hourly q
JOIN calendar c ON c.hour_start = q.hour_start
LEFT JOIN tenants t ON t.cluster = q.cluster AND t.queue = q.queue
WHERE q.resource <> ''
GROUP BY q.cluster, COALESCE(t.tenant, q.queue), q.queue, q.resource
ORDER BY q.cluster, q.queue, q.resource;

-- TABLE queue_waits: by queue: gangs admitted, how long they had waited, who waits, evictions by cause.
SELECT q.cluster, COALESCE(t.tenant, q.queue) AS tenant, q.queue,
  SUM(q.admitted) AS admitted,
  CASE WHEN SUM(q.admitted) > 0.0 THEN SUM(q.wait_seconds) / SUM(q.admitted) END AS mean_wait_seconds,
  AVG(q.waiting) AS mean_waiting_gangs, MAX(q.waiting) AS most_waiting_gangs,
  SUM(q.evicted_priority) AS evicted_priority, SUM(q.evicted_reclaim) AS evicted_reclaim,
  SUM(q.evicted_rollback) AS evicted_rollback, SUM(q.evicted_node) AS evicted_node,
  SUM(q.evicted_bypass) AS evicted_bypass, COUNT(*) AS hours_seen
FROM queue_hourly q
JOIN calendar c ON c.hour_start = q.hour_start
LEFT JOIN tenants t ON t.cluster = q.cluster AND t.queue = q.queue
WHERE q.resource = ''
GROUP BY q.cluster, COALESCE(t.tenant, q.queue), q.queue
ORDER BY q.cluster, q.queue;
