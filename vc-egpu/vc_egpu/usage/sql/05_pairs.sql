-- Off-peak pairs: services that may be partners, and their busy hours. Matching them is no SQL.

-- TABLE pair_candidates: large shares that live, were seen long enough, and work at times.
SELECT
  h.cluster, n.tenant, n.queue, h.namespace, h.service, h.container, h.model, n.class,
  n.kind, n.memory_granted_bytes,
  MAX(h.memory_used_max_bytes) AS memory_used_max_bytes, MAX(h.card_memory_bytes) AS card_memory_bytes,
  SUM(h.active_seconds) / 3600.0 AS active_hours, SUM(h.active_seconds) / SUM(h.held_seconds) AS on_card_ratio,
  SUM(CASE WHEN h.compute_used_seconds > g.busy_ratio * h.active_seconds THEN 1 ELSE 0 END) AS busy_hours,
  COUNT(*) AS hours_seen
FROM service_hours h
JOIN services_seen n ON n.cluster = h.cluster AND n.namespace = h.namespace AND n.service = h.service
  AND n.container = h.container AND n.model = h.model
CROSS JOIN settings g
WHERE h.hour_index >= g.until_index - g.pair_hours AND h.held_seconds > 0.0
GROUP BY h.cluster, n.tenant, n.queue, h.namespace, h.service, h.container, h.model, n.class,
  n.kind, n.memory_granted_bytes
HAVING MIN(h.part) >= MIN(g.large_part) AND MIN(h.is_told) = 1 AND MAX(h.hour_index) >= MIN(g.until_index) - 24
  AND SUM(CASE WHEN h.compute_used_seconds > g.busy_ratio * h.active_seconds THEN 1 ELSE 0 END) > 0
  AND SUM(h.minutes_seen) >= MIN(g.least_seen_ratio) * 60 * MIN(g.pair_hours)
ORDER BY h.cluster, h.model, h.namespace, h.service, h.container;

-- TABLE pair_busy_hours: the busy hours of each candidate.
SELECT h.cluster, h.namespace, h.service, h.container, h.model, h.hour_index
FROM service_hours h
JOIN pair_candidates c ON c.cluster = h.cluster AND c.namespace = h.namespace AND c.service = h.service
  AND c.container = h.container AND c.model = h.model
CROSS JOIN settings g
WHERE h.hour_index >= g.until_index - g.pair_hours AND h.compute_used_seconds > g.busy_ratio * h.active_seconds;
