-- Idle: held and hardly used. An hour that nothing measured is not called idle.

-- TABLE idle_hours: each hour of a service in which it was on its cards, with whether it idled.
SELECT
  h.cluster, h.namespace, h.service, h.container, h.model, h.hour_index, h.local_hour, h.local_weekday,
  h.held_seconds, h.active_seconds, h.part_seconds, h.compute_used_seconds, h.minutes_seen,
  CASE WHEN h.is_told = 1 AND h.memory_moves = 0 AND h.compute_used_seconds < g.idle_ratio * h.active_seconds
    THEN 1 ELSE 0 END AS idles
FROM service_hours h CROSS JOIN settings g
WHERE h.active_seconds > 0.0;

-- TABLE last_work: the last hour in which a service did not idle.
SELECT cluster, namespace, service, container, model,
  COALESCE(MAX(CASE WHEN idles = 0 THEN hour_index END), -1) AS last_busy_index
FROM idle_hours
GROUP BY cluster, namespace, service, container, model;

-- TABLE idle_services: services that idled for an hour at least, the most idle card-hours first.
SELECT
  h.cluster, n.tenant, n.queue, h.namespace, h.service, h.container, h.model, n.class,
  SUM(h.part_seconds) / 3600.0 AS held_card_hours,
  SUM(h.idles * h.part_seconds) / 3600.0 AS idle_card_hours,
  SUM(h.idles * h.active_seconds) / SUM(h.active_seconds) AS idle_ratio,
  SUM(h.compute_used_seconds) / SUM(h.active_seconds) AS compute_used_ratio,
  MIN(CASE WHEN h.idles = 1 AND h.hour_index > w.last_busy_index THEN h.hour_index END) AS idle_since_index,
  MAX(h.hour_index) AS last_seen_index,
  SUM(60 - h.minutes_seen) AS minutes_missing
FROM idle_hours h
JOIN last_work w ON w.cluster = h.cluster AND w.namespace = h.namespace AND w.service = h.service
  AND w.container = h.container AND w.model = h.model
JOIN services_seen n ON n.cluster = h.cluster AND n.namespace = h.namespace AND n.service = h.service
  AND n.container = h.container AND n.model = h.model
GROUP BY h.cluster, n.tenant, n.queue, h.namespace, h.service, h.container, h.model, n.class
HAVING SUM(h.idles * h.held_seconds) >= 3600.0
ORDER BY idle_card_hours DESC, h.cluster, h.namespace, h.service, h.container, h.model;

-- TABLE low_gang_hours: each hour of a gang of class low in which it was on its cards, with whether all of it idled.
SELECT
  h.cluster, h.namespace, h.gang, h.hour_index, MAX(h.tenant) AS tenant, MAX(h.queue) AS queue, MAX(h.service) AS service,
  MAX(h.model) AS model, SUM(h.part * h.active_seconds) AS part_seconds,
  CASE WHEN MIN(CASE WHEN h.compute_used_seconds IS NULL OR h.memory_used_max_bytes IS NULL
      OR h.memory_used_mean_bytes IS NULL
      OR h.memory_used_max_bytes - h.memory_used_mean_bytes > g.flat_ratio * h.memory_granted_bytes
      THEN 0 ELSE 1 END) = 1
    AND SUM(h.compute_used_seconds) < MAX(g.idle_ratio) * SUM(h.active_seconds) THEN 1 ELSE 0 END AS idles
FROM share_hours h CROSS JOIN settings g
WHERE h.class = 'low' AND h.gang <> '' AND h.active_seconds > 0.0
GROUP BY h.cluster, h.namespace, h.gang, h.hour_index;

-- TABLE idle_gangs: gangs of class low that idled in the last hour and hold cards, those that idle longest first.
SELECT
  h.cluster, h.tenant, h.queue, h.namespace, h.gang, h.service, h.model, h.idle_hours, h.idle_card_hours,
  h.idle_since_index
FROM (
  SELECT a.cluster, a.namespace, a.gang, MAX(a.tenant) AS tenant, MAX(a.queue) AS queue, MAX(a.service) AS service,
    MAX(a.model) AS model, COUNT(*) AS idle_hours, SUM(a.part_seconds) / 3600.0 AS idle_card_hours,
    MIN(a.hour_index) AS idle_since_index, MAX(a.hour_index) AS last_seen_index
  FROM low_gang_hours a
  JOIN (
    SELECT cluster, namespace, gang, MAX(CASE WHEN idles = 0 THEN hour_index ELSE -1 END) AS last_busy_index
    FROM low_gang_hours GROUP BY cluster, namespace, gang
  ) w ON w.cluster = a.cluster AND w.namespace = a.namespace AND w.gang = a.gang
  WHERE a.hour_index > w.last_busy_index
  GROUP BY a.cluster, a.namespace, a.gang
) h
CROSS JOIN settings g
WHERE h.last_seen_index >= g.until_index - 1
ORDER BY h.idle_hours DESC, h.cluster, h.namespace, h.gang;

-- TABLE idle_windows: by service, weekday (1 is Monday) and hour of the day: how much of its time it idled.
SELECT
  h.cluster, n.tenant, h.namespace, h.service, h.container, h.model, h.local_weekday, h.local_hour,
  SUM(h.active_seconds) / 3600.0 AS held_hours,
  SUM(h.idles * h.active_seconds) / SUM(h.active_seconds) AS idle_ratio,
  SUM(h.compute_used_seconds) / SUM(h.active_seconds) AS compute_used_ratio
FROM idle_hours h
JOIN idle_services n ON n.cluster = h.cluster AND n.namespace = h.namespace AND n.service = h.service
  AND n.container = h.container AND n.model = h.model
GROUP BY h.cluster, n.tenant, h.namespace, h.service, h.container, h.model, h.local_weekday, h.local_hour
ORDER BY h.cluster, h.namespace, h.service, h.container, h.model, h.local_weekday, h.local_hour;

-- TABLE idle_cards: by card: hours without a share, and hours with shares of which none worked.
SELECT
  k.cluster, k.node, k.uuid, k.model,
  SUM(k.seconds) / 3600.0 AS card_hours,
  SUM(CASE WHEN k.shares = 0 THEN k.seconds ELSE 0.0 END) / 3600.0 AS free_hours,
  SUM(CASE WHEN k.shares > 0 AND COALESCE(k.card_compute_seconds, k.compute_used_seconds) < g.idle_ratio * k.seconds
    THEN k.seconds ELSE 0.0 END) / 3600.0 AS granted_idle_hours,
  SUM(CASE WHEN k.first_seconds + k.low_seconds < k.seconds THEN k.first_seconds + k.low_seconds ELSE k.seconds END)
    / 3600.0 AS granted_card_hours,
  SUM(COALESCE(k.card_compute_seconds, k.compute_used_seconds)) / SUM(k.seconds) AS compute_used_ratio,
  MAX(k.hour_index) AS last_seen_index
FROM card_hours k CROSS JOIN settings g
WHERE k.seconds > 0.0
GROUP BY k.cluster, k.node, k.uuid, k.model
ORDER BY free_hours + granted_idle_hours DESC, k.cluster, k.node, k.uuid;
