-- The hours that all reports read. Beforehand there are: usage_hourly and queue_hourly (the contract, each row once),
-- calendar (each hour with its local hour and weekday), services (the lasting name of each gang and pod), tenants
-- (the topmost queue of each queue) and settings (one row). Each block makes one table or view. LEAST and GREATEST pass over
-- what is empty, so that they stand only where nothing is. Low shares have the compute that others leave: what was
-- promised of a card is its memory, or the cores of low shares alone, or those of the others alone.

-- TABLE card_sizes: the memory of each card, for shares whose rows do not say it.
SELECT cluster, uuid, MAX(card_memory_bytes) AS card_memory_bytes, MAX(model) AS model
FROM usage_hourly
GROUP BY cluster, uuid;

-- TABLE share_hours: one row for each share and hour. `part` is the share's part of its card.
SELECT
  u.cluster, u.namespace, s.service, s.kind, u.container, u.queue, COALESCE(t.tenant, u.queue) AS tenant, u.gang, u.pod,
  u.node, u.uuid, u.model, u.class, c.hour_index, c.local_hour, c.local_weekday, c.utc_day,
  u.memory_granted_bytes, z.card_memory_bytes, u.memory_used_max_bytes, u.memory_used_mean_bytes,
  COALESCE(u.cores_granted_ratio, 0.0) AS cores_granted_ratio,
  CASE WHEN u.compute_used_seconds > 3600.0 THEN 3600.0 ELSE u.compute_used_seconds END AS compute_used_seconds,
  CASE WHEN u.compute_used_max_ratio > 1.0 THEN 1.0 ELSE u.compute_used_max_ratio END AS compute_used_max_ratio,
  LEAST(u.held_seconds, 3600.0) AS held_seconds,
  LEAST(COALESCE(u.suspended_seconds, 0.0), LEAST(u.held_seconds, 3600.0)) AS suspended_seconds,
  LEAST(u.held_seconds, 3600.0) - LEAST(COALESCE(u.suspended_seconds, 0.0), LEAST(u.held_seconds, 3600.0)) AS active_seconds,
  LEAST(1.0, CASE g.charge
    WHEN 'memory' THEN u.memory_granted_bytes / z.card_memory_bytes
    WHEN 'cores' THEN COALESCE(u.cores_granted_ratio, 0.0)
    ELSE GREATEST(u.memory_granted_bytes / z.card_memory_bytes, COALESCE(u.cores_granted_ratio, 0.0))
  END) AS part,
  LEAST(1.0, u.memory_granted_bytes / z.card_memory_bytes) AS memory_part,
  u.launch_wait_share_seconds, COALESCE(u.restarts, 0.0) AS restarts, COALESCE(u.oom_kills, 0.0) AS oom_kills,
  u.minutes_seen
FROM usage_hourly u
JOIN calendar c ON c.hour_start = u.hour_start
JOIN services s ON s.gang = u.gang AND s.pod = u.pod
JOIN card_sizes z ON z.cluster = u.cluster AND z.uuid = u.uuid
CROSS JOIN settings g
LEFT JOIN tenants t ON t.cluster = u.cluster AND t.queue = u.queue
WHERE u.pod <> '' AND z.card_memory_bytes > 0;

-- TABLE shared_card_hours: what the shares of a card sum up to in an hour.
SELECT
  cluster, uuid, hour_index, MAX(node) AS node, MAX(model) AS model, COUNT(*) AS shares,
  MAX(held_seconds) AS longest_held_seconds, SUM(held_seconds) AS held_seconds,
  SUM(suspended_seconds) AS suspended_seconds,
  SUM(CASE WHEN class = 'low' THEN 0.0 ELSE part * active_seconds END) AS first_seconds,
  SUM(CASE WHEN class = 'low' THEN part * active_seconds ELSE 0.0 END) AS low_seconds,
  SUM(CASE WHEN class = 'low' THEN active_seconds ELSE 0.0 END) AS low_active_seconds,
  MAX(CASE WHEN class = 'high' THEN active_seconds ELSE 0.0 END) AS high_active_seconds,
  GREATEST(
    SUM(memory_part * active_seconds),
    SUM(CASE WHEN class = 'low' THEN 0.0 ELSE cores_granted_ratio * active_seconds END),
    SUM(CASE WHEN class = 'low' THEN cores_granted_ratio * active_seconds ELSE 0.0 END)
  ) AS promised_seconds,
  SUM(compute_used_seconds) AS compute_used_seconds
FROM share_hours
GROUP BY cluster, uuid, hour_index;

-- TABLE card_hours: one row for each card and hour, shared or not. `seconds` is how long the card was there.
SELECT
  COALESCE(k.cluster, s.cluster) AS cluster, COALESCE(k.uuid, s.uuid) AS uuid,
  COALESCE(k.hour_index, s.hour_index) AS hour_index, COALESCE(k.node, s.node) AS node,
  COALESCE(k.model, s.model) AS model,
  GREATEST(COALESCE(k.seconds, 0.0), COALESCE(s.longest_held_seconds, 0.0)) AS seconds,
  COALESCE(k.minutes_seen, 0) AS minutes_seen, k.compute_used_seconds AS card_compute_seconds,
  COALESCE(s.shares, 0) AS shares, COALESCE(s.longest_held_seconds, 0.0) AS longest_held_seconds,
  COALESCE(s.held_seconds, 0.0) AS held_seconds, COALESCE(s.suspended_seconds, 0.0) AS suspended_seconds,
  COALESCE(s.promised_seconds, 0.0) AS promised_seconds, COALESCE(s.first_seconds, 0.0) AS first_seconds,
  COALESCE(s.low_seconds, 0.0) AS low_seconds, COALESCE(s.low_active_seconds, 0.0) AS low_active_seconds,
  COALESCE(s.high_active_seconds, 0.0) AS high_active_seconds,
  COALESCE(s.compute_used_seconds, 0.0) AS compute_used_seconds
FROM (
  SELECT u.cluster, u.uuid, c.hour_index, MAX(u.node) AS node, MAX(u.model) AS model,
    LEAST(3600.0, MAX(u.held_seconds)) AS seconds, MAX(u.minutes_seen) AS minutes_seen,
    MAX(CASE WHEN u.compute_used_seconds > 3600.0 THEN 3600.0 ELSE u.compute_used_seconds END) AS compute_used_seconds
  FROM usage_hourly u JOIN calendar c ON c.hour_start = u.hour_start
  WHERE u.pod = ''
  GROUP BY u.cluster, u.uuid, c.hour_index
) k
FULL OUTER JOIN shared_card_hours s ON s.cluster = k.cluster AND s.uuid = k.uuid AND s.hour_index = k.hour_index;

-- TABLE service_hours: one row for each service's container and hour, over all its shares.
SELECT
  h.cluster, h.namespace, h.service, h.container, h.model, h.hour_index,
  MAX(h.local_hour) AS local_hour, MAX(h.local_weekday) AS local_weekday, MAX(h.queue) AS queue, MAX(h.tenant) AS tenant,
  MAX(h.class) AS class, MAX(h.kind) AS kind, COUNT(*) AS shares,
  SUM(h.held_seconds) AS held_seconds, SUM(h.active_seconds) AS active_seconds,
  SUM(h.suspended_seconds) AS suspended_seconds, SUM(h.part * h.active_seconds) AS part_seconds,
  SUM(h.compute_used_seconds) AS compute_used_seconds,
  MIN(CASE WHEN h.compute_used_seconds IS NULL OR h.memory_used_max_bytes IS NULL OR h.memory_used_mean_bytes IS NULL
    THEN 0 ELSE 1 END) AS is_told,
  MAX(CASE WHEN h.memory_used_max_bytes - h.memory_used_mean_bytes > g.flat_ratio * h.memory_granted_bytes
    THEN 1 ELSE 0 END) AS memory_moves,
  MAX(h.memory_used_max_bytes) AS memory_used_max_bytes, MAX(h.memory_granted_bytes) AS memory_granted_bytes,
  MAX(h.card_memory_bytes) AS card_memory_bytes, MAX(h.cores_granted_ratio) AS cores_granted_ratio,
  MAX(h.compute_used_max_ratio) AS compute_used_max_ratio,
  MAX(h.part) AS part, SUM(h.launch_wait_share_seconds) AS launch_wait_share_seconds,
  SUM(h.restarts) AS restarts, SUM(h.oom_kills) AS oom_kills,
  MAX(h.minutes_seen) AS minutes_seen, SUM(h.minutes_seen) AS minutes_of_shares
FROM share_hours h CROSS JOIN settings g
GROUP BY h.cluster, h.namespace, h.service, h.container, h.model, h.hour_index;

-- TABLE services_seen: one row for each service's container and model, as it was last seen.
SELECT
  cluster, namespace, service, container, model,
  MAX_BY(queue, hour_index) AS queue, MAX_BY(tenant, hour_index) AS tenant, MAX_BY(class, hour_index) AS class,
  MAX_BY(kind, hour_index) AS kind, MAX_BY(memory_granted_bytes, hour_index) AS memory_granted_bytes,
  MAX_BY(cores_granted_ratio, hour_index) AS cores_granted_ratio,
  MAX(card_memory_bytes) AS card_memory_bytes, MIN(hour_index) AS first_index, MAX(hour_index) AS last_index
FROM service_hours
GROUP BY cluster, namespace, service, container, model;
