-- Right sizes: the observed maximum of memory with headroom, and a weighted percentile of cores.

-- TABLE sizes_seen: what each service asked for, used, and suffered.
SELECT
  h.cluster, h.namespace, h.service, h.container, h.model,
  CAST(SUM(h.minutes_seen) AS DOUBLE) / 60.0 AS hours_seen,
  LEAST(1.0, SUM(h.minutes_of_shares) * 60.0 / SUM(h.held_seconds)) AS seen_ratio,
  SUM(h.held_seconds) / 3600.0 AS held_hours,
  MAX(h.memory_used_max_bytes) AS memory_used_max_bytes,
  MIN(h.is_told) AS is_told,
  SUM(COALESCE(h.launch_wait_share_seconds, 0.0)) / SUM(h.held_seconds) AS launch_wait_ratio,
  SUM(h.restarts) AS restarts, SUM(h.oom_kills) AS oom_kills
FROM service_hours h
WHERE h.held_seconds > 0.0
GROUP BY h.cluster, h.namespace, h.service, h.container, h.model;

-- VIEW cores_weights: by value of the busiest minute of an hour: its weight, halved with each half-life of age.
SELECT h.cluster, h.namespace, h.service, h.container, h.model, h.compute_used_max_ratio AS used_ratio,
  SUM(POWER(0.5, (g.until_index - h.hour_index) / g.half_life_hours)) AS weight
FROM service_hours h CROSS JOIN settings g
WHERE h.compute_used_max_ratio IS NOT NULL
GROUP BY h.cluster, h.namespace, h.service, h.container, h.model, h.compute_used_max_ratio;

-- TABLE cores_percentiles: the smallest value below which the percentile of all weight lies.
SELECT cluster, namespace, service, container, model, MIN(used_ratio) AS cores_percentile_ratio
FROM (
  SELECT w.*, g.percentile,
    SUM(w.weight) OVER (PARTITION BY w.cluster, w.namespace, w.service, w.container, w.model ORDER BY w.used_ratio) AS up_to,
    SUM(w.weight) OVER (PARTITION BY w.cluster, w.namespace, w.service, w.container, w.model) AS of_all
  FROM cores_weights w CROSS JOIN settings g
) ranked
WHERE up_to >= percentile * of_all * (1.0 - 0.000000001)
GROUP BY cluster, namespace, service, container, model;

-- TABLE sizes_wanted: memory and cores that would do, before what speaks against a change.
SELECT
  s.*, n.tenant, n.queue, n.class, n.kind, n.memory_granted_bytes, n.card_memory_bytes, n.cores_granted_ratio, n.last_index,
  p.cores_percentile_ratio,
  CEIL(GREATEST(
    s.memory_used_max_bytes * CASE WHEN s.restarts > 0.0 THEN g.restart_headroom ELSE g.headroom END,
    s.memory_used_max_bytes + g.reserve_bytes) / g.step_bytes) * g.step_bytes AS memory_wanted_bytes,
  CASE WHEN p.cores_percentile_ratio IS NOT NULL THEN
    GREATEST(0.01, LEAST(1.0, CEIL(p.cores_percentile_ratio * g.headroom * 100.0 - 0.000001) / 100.0)) END AS cores_wanted_ratio,
  CASE
    WHEN s.memory_used_max_bytes IS NULL THEN 'not measured'
    WHEN n.last_index < g.until_index - 24 THEN 'ended'
    WHEN s.hours_seen < g.least_hours OR s.seen_ratio < g.least_seen_ratio THEN 'too little seen'
    ELSE ''
  END AS hindrance
FROM sizes_seen s
JOIN services_seen n ON n.cluster = s.cluster AND n.namespace = s.namespace AND n.service = s.service
  AND n.container = s.container AND n.model = s.model
LEFT JOIN cores_percentiles p ON p.cluster = s.cluster AND p.namespace = s.namespace AND p.service = s.service
  AND p.container = s.container AND p.model = s.model
CROSS JOIN settings g;

-- TABLE sizes_proposed: what the card allows, no less memory after an OOM, no fewer cores where they were short.
SELECT w.*,
  CASE WHEN w.hindrance <> '' THEN NULL ELSE GREATEST(
    LEAST(w.memory_wanted_bytes, GREATEST(w.card_memory_bytes, w.memory_used_max_bytes)),
    CASE WHEN w.oom_kills > 0.0 THEN w.memory_granted_bytes ELSE 0.0 END) END AS memory_proposed_bytes,
  CASE
    WHEN w.hindrance <> '' OR w.cores_granted_ratio = 0.0 OR w.cores_wanted_ratio IS NULL THEN NULL
    WHEN w.launch_wait_ratio > g.most_wait_ratio THEN GREATEST(w.cores_granted_ratio, w.cores_wanted_ratio)
    ELSE w.cores_wanted_ratio
  END AS cores_proposed_ratio
FROM sizes_wanted w CROSS JOIN settings g;

-- TABLE hours_exceeded: hours of the past in which the proposed memory had not been enough. It must be 0.
SELECT h.cluster, h.namespace, h.service, h.container, h.model,
  SUM(CASE WHEN h.memory_used_max_bytes > p.memory_proposed_bytes THEN 1 ELSE 0 END) AS hours_exceeded
FROM service_hours h
JOIN sizes_proposed p ON p.cluster = h.cluster AND p.namespace = h.namespace AND p.service = h.service
  AND p.container = h.container AND p.model = h.model
GROUP BY h.cluster, h.namespace, h.service, h.container, h.model;

-- TABLE right_sizes: one row for each service, what saves most first.
SELECT
  p.cluster, p.tenant, p.queue, p.namespace, p.service, p.container, p.model, p.class, p.kind,
  CASE
    WHEN p.hindrance <> '' THEN p.hindrance
    WHEN p.memory_proposed_bytes > p.memory_granted_bytes
      OR COALESCE(p.cores_proposed_ratio > p.cores_granted_ratio, FALSE) THEN 'grow'
    WHEN p.memory_proposed_bytes < p.memory_granted_bytes
      OR COALESCE(p.cores_proposed_ratio < p.cores_granted_ratio, FALSE) THEN 'shrink'
    ELSE 'keep'
  END AS advice,
  p.memory_granted_bytes, p.memory_used_max_bytes, p.memory_proposed_bytes,
  p.cores_granted_ratio, p.cores_percentile_ratio, p.cores_proposed_ratio,
  p.hours_seen, p.seen_ratio, 1.0 / (1.0 + 24.0 / p.hours_seen) AS confidence_ratio,
  p.memory_proposed_bytes * (1.0 + 24.0 / p.hours_seen) AS memory_upper_bound_bytes,
  p.restarts, p.oom_kills, p.launch_wait_ratio,
  1.0 - p.memory_used_max_bytes / p.memory_granted_bytes AS slack_ratio,
  CASE WHEN p.hindrance <> '' THEN 0.0 ELSE (
    LEAST(1.0, GREATEST(p.memory_granted_bytes / p.card_memory_bytes, p.cores_granted_ratio))
    - LEAST(1.0, GREATEST(p.memory_proposed_bytes / p.card_memory_bytes,
                          COALESCE(p.cores_proposed_ratio, p.cores_granted_ratio)))
  ) * p.held_hours * 168.0 / g.window_hours END AS saved_card_hours_per_week,
  e.hours_exceeded, p.last_index AS last_seen_index
FROM sizes_proposed p
JOIN hours_exceeded e ON e.cluster = p.cluster AND e.namespace = p.namespace AND e.service = p.service
  AND e.container = p.container AND e.model = p.model
CROSS JOIN settings g
ORDER BY saved_card_hours_per_week DESC, p.cluster, p.namespace, p.service, p.container, p.model;
