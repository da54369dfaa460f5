-- From samples in Kafka to the table usage_hourly, in Flink SQL. Set the addresses and the path before you submit it.
-- The highest value of each series and minute comes first, so that a sample that comes twice changes nothing.
-- Counters grow from minute to minute. A value below the one before is a restart: the counter began again at 0.

SET 'table.local-time-zone' = 'UTC';
SET 'table.exec.source.idle-timeout' = '60 s';
SET 'execution.checkpointing.interval' = '60 s';

-- A message without a time would end the job, and one of a clock that is ahead would make all others late. Both
-- count as samples of 1970, which no window takes.
CREATE TABLE samples (
  `timestamp` TIMESTAMP_LTZ(3),
  `value` STRING,
  `name` STRING,
  `labels` MAP<STRING, STRING>,
  `sample_time` AS CASE
    WHEN `timestamp` IS NULL OR `timestamp` > CURRENT_TIMESTAMP + INTERVAL '10' MINUTE THEN TO_TIMESTAMP_LTZ(0, 3)
    ELSE `timestamp`
  END,
  WATERMARK FOR `sample_time` AS `sample_time` - INTERVAL '5' MINUTE
) WITH (
  'connector' = 'kafka',
  'topic' = 'egpu-usage',
  'properties.bootstrap.servers' = 'kafka:9092',
  'properties.group.id' = 'vc-egpu-usage',
  'scan.startup.mode' = 'group-offsets',
  'properties.auto.offset.reset' = 'earliest',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE usage_hourly (
  `cluster` STRING, `namespace` STRING, `queue` STRING, `gang` STRING, `pod` STRING, `container` STRING,
  `node` STRING, `uuid` STRING, `model` STRING, `class` STRING,
  `hour_start` TIMESTAMP(3),
  `memory_granted_bytes` DOUBLE, `card_memory_bytes` DOUBLE, `memory_used_max_bytes` DOUBLE,
  `memory_used_mean_bytes` DOUBLE, `cores_granted_ratio` DOUBLE, `compute_used_seconds` DOUBLE,
  `held_seconds` DOUBLE, `suspended_seconds` DOUBLE,
  `minutes_seen` BIGINT,
  `compute_used_max_ratio` DOUBLE, `launch_wait_share_seconds` DOUBLE, `restarts` DOUBLE, `oom_kills` DOUBLE,
  `dt` STRING
) PARTITIONED BY (`dt`) WITH (
  'connector' = 'filesystem',
  'path' = 's3://usage/usage_hourly',
  'format' = 'parquet',
  'parquet.utc-timezone' = 'true',
  'parquet.compression' = 'SNAPPY'
);

CREATE TABLE queue_hourly (
  `cluster` STRING, `queue` STRING, `parent` STRING, `resource` STRING,
  `hour_start` TIMESTAMP(3),
  `used` DOUBLE, `deserved` DOUBLE, `guarantee` DOUBLE, `capability` DOUBLE, `waiting` DOUBLE, `admitted` DOUBLE,
  `wait_seconds` DOUBLE, `evicted_priority` DOUBLE, `evicted_reclaim` DOUBLE, `evicted_rollback` DOUBLE,
  `evicted_node` DOUBLE, `evicted_bypass` DOUBLE,
  `minutes_seen` BIGINT,
  `dt` STRING
) PARTITIONED BY (`dt`) WITH (
  'connector' = 'filesystem',
  'path' = 's3://usage/queue_hourly',
  'format' = 'parquet',
  'parquet.utc-timezone' = 'true',
  'parquet.compression' = 'SNAPPY'
);

-- One row for each series and minute. What is no finite number is left out.
CREATE TEMPORARY VIEW minute_values AS
SELECT
  window_time AS minute_time, `cluster`, `namespace`, `pod`, `container`, `uuid`, `name`,
  MAX(`number`) AS `number`, MAX(`queue`) AS `queue`, MAX(`gang`) AS `gang`, MAX(`class`) AS `class`,
  MAX(`node`) AS `node`, MAX(`model`) AS `model`
FROM (
  SELECT
    window_start, window_end, window_time, `name`, TRY_CAST(`value` AS DOUBLE) AS `number`,
    COALESCE(`labels`['cluster'], '') AS `cluster`, COALESCE(`labels`['namespace'], '') AS `namespace`,
    COALESCE(`labels`['pod'], '') AS `pod`, COALESCE(`labels`['container'], '') AS `container`,
    COALESCE(`labels`['uuid'], `labels`['UUID'], '') AS `uuid`, COALESCE(`labels`['queue'], '') AS `queue`,
    COALESCE(`labels`['gang'], '') AS `gang`, COALESCE(`labels`['class'], '') AS `class`,
    COALESCE(`labels`['node'], '') AS `node`, COALESCE(`labels`['model'], '') AS `model`
  FROM TABLE(TUMBLE(TABLE samples, DESCRIPTOR(`sample_time`), INTERVAL '1' MINUTE))
  WHERE `value` NOT IN ('NaN', '+Inf', '-Inf') AND TRY_CAST(`value` AS DOUBLE) IS NOT NULL
    AND COALESCE(`labels`['uuid'], `labels`['UUID']) IS NOT NULL
    AND (`name` <> 'egpu_node_container_launch_wait_seconds_total' OR `labels`['cause'] = 'share')
)
GROUP BY window_start, window_end, window_time, `cluster`, `namespace`, `pod`, `container`, `uuid`, `name`;

CREATE TEMPORARY VIEW minute_pairs AS
SELECT *,
  LAG(`number`) OVER (PARTITION BY `cluster`, `namespace`, `pod`, `container`, `uuid`, `name` ORDER BY minute_time)
    AS number_before,
  LAG(CAST(minute_time AS TIMESTAMP_LTZ(3))) OVER (
    PARTITION BY `cluster`, `namespace`, `pod`, `container`, `uuid`, `name` ORDER BY minute_time) AS time_before
FROM minute_values;

-- Growth over more than five minutes is counted nowhere: minutes_seen says that minutes are missing.
CREATE TEMPORARY VIEW minute_steps AS
SELECT *,
  CASE
    WHEN time_before IS NULL OR TIMESTAMPDIFF(SECOND, time_before, minute_time) > 300 THEN CAST(0 AS DOUBLE)
    WHEN `number` < number_before THEN `number`
    ELSE `number` - number_before
  END AS growth,
  CASE
    WHEN time_before IS NULL OR TIMESTAMPDIFF(SECOND, time_before, minute_time) < 60 THEN CAST(60 AS DOUBLE)
    ELSE CAST(TIMESTAMPDIFF(SECOND, time_before, minute_time) AS DOUBLE)
  END AS step_seconds
FROM minute_pairs;

CREATE TEMPORARY VIEW hours AS
SELECT
  window_start, window_end, `cluster`, `namespace`, `pod`, `container`, `uuid`,
  MAX(`queue`) AS `queue`, MAX(`gang`) AS `gang`, MAX(`class`) AS `class`, MAX(`node`) AS `node`, MAX(`model`) AS `model`,
  MAX(CASE WHEN `name` = 'egpu_share_memory_bytes' THEN `number` END) AS granted,
  COUNT(CASE WHEN `name` = 'egpu_share_memory_bytes' THEN 1 END) AS granted_minutes,
  MAX(CASE WHEN `name` = 'egpu_card_memory_allocated_bytes' THEN `number` END) AS allocated,
  MAX(CASE WHEN `name` = 'egpu_card_memory_bytes' THEN `number` END) AS card_memory,
  COUNT(CASE WHEN `name` = 'egpu_card_memory_bytes' THEN 1 END) AS card_minutes,
  MAX(CASE WHEN `name` IN ('egpu_share_cores_ratio', 'egpu_card_cores_allocated_ratio') THEN `number` END) AS cores,
  MAX(CASE WHEN `name` = 'egpu_node_container_memory_used_bytes' THEN `number` END) AS used_max,
  AVG(CASE WHEN `name` = 'egpu_node_container_memory_used_bytes' THEN `number` END) AS used_mean,
  COUNT(CASE WHEN `name` = 'egpu_node_container_memory_used_bytes' THEN 1 END) AS used_minutes,
  SUM(CASE WHEN `name` = 'egpu_node_container_compute_used_seconds_total' THEN growth END) AS compute,
  MAX(CASE WHEN `name` = 'egpu_node_container_compute_used_seconds_total' THEN growth / step_seconds END) AS compute_max,
  SUM(CASE WHEN `name` = 'egpu_node_container_share_seconds_total' THEN growth END) AS held,
  SUM(CASE WHEN `name` = 'egpu_node_container_suspended_seconds_total' THEN growth END) AS suspended,
  SUM(CASE WHEN `name` = 'egpu_node_container_launch_wait_seconds_total' THEN growth END) AS launch_wait,
  MAX(CASE WHEN `name` = 'DCGM_FI_DEV_FB_USED' THEN `number` END) AS fb_max,
  AVG(CASE WHEN `name` = 'DCGM_FI_DEV_FB_USED' THEN `number` END) AS fb_mean,
  MAX(CASE WHEN `name` = 'DCGM_FI_DEV_GPU_UTIL' THEN `number` END) AS util_max,
  AVG(CASE WHEN `name` = 'DCGM_FI_DEV_GPU_UTIL' THEN `number` END) AS util_mean,
  COUNT(CASE WHEN `name` = 'DCGM_FI_DEV_GPU_UTIL' THEN 1 END) AS util_minutes
FROM TABLE(TUMBLE(TABLE minute_steps, DESCRIPTOR(minute_time), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, `cluster`, `namespace`, `pod`, `container`, `uuid`;

-- The same for queues: a series is told by its queue and by what else it names.
CREATE TEMPORARY VIEW queue_minutes AS
SELECT
  window_time AS minute_time, `cluster`, `queue`, `resource`, `cause`, `part`, `name`,
  MAX(`number`) AS `number`, MAX(`parent`) AS `parent`
FROM (
  SELECT
    window_start, window_end, window_time, `name`, TRY_CAST(`value` AS DOUBLE) AS `number`,
    COALESCE(`labels`['cluster'], '') AS `cluster`, `labels`['queue'] AS `queue`,
    COALESCE(`labels`['resource'], '') AS `resource`, COALESCE(`labels`['cause'], '') AS `cause`,
    CONCAT(COALESCE(`labels`['reason'], ''), '/', COALESCE(`labels`['class'], '')) AS `part`,
    COALESCE(`labels`['parent'], '') AS `parent`
  FROM TABLE(TUMBLE(TABLE samples, DESCRIPTOR(`sample_time`), INTERVAL '1' MINUTE))
  WHERE `value` NOT IN ('NaN', '+Inf', '-Inf') AND TRY_CAST(`value` AS DOUBLE) IS NOT NULL
    AND `labels`['queue'] IS NOT NULL AND `labels`['uuid'] IS NULL
)
GROUP BY window_start, window_end, window_time, `cluster`, `queue`, `resource`, `cause`, `part`, `name`;

CREATE TEMPORARY VIEW queue_pairs AS
SELECT *,
  LAG(`number`) OVER (
    PARTITION BY `cluster`, `queue`, `resource`, `cause`, `part`, `name` ORDER BY minute_time) AS number_before,
  LAG(CAST(minute_time AS TIMESTAMP_LTZ(3))) OVER (
    PARTITION BY `cluster`, `queue`, `resource`, `cause`, `part`, `name` ORDER BY minute_time) AS time_before
FROM queue_minutes;

CREATE TEMPORARY VIEW queue_steps AS
SELECT *,
  CASE
    WHEN time_before IS NULL OR TIMESTAMPDIFF(SECOND, time_before, minute_time) > 300 THEN CAST(0 AS DOUBLE)
    WHEN `number` < number_before THEN `number`
    ELSE `number` - number_before
  END AS growth
FROM queue_pairs;

CREATE TEMPORARY VIEW queue_hours AS
SELECT
  window_start, window_end, `cluster`, `queue`, `resource`, MAX(`parent`) AS `parent`,
  AVG(CASE WHEN `name` = 'egpu_queue_used' THEN `number` END) AS used,
  AVG(CASE WHEN `name` = 'egpu_queue_deserved' THEN `number` END) AS deserved,
  AVG(CASE WHEN `name` = 'egpu_queue_guarantee' THEN `number` END) AS guarantee,
  AVG(CASE WHEN `name` = 'egpu_queue_capability' THEN `number` END) AS capability,
  AVG(CASE WHEN `name` = 'egpu_queue_waiting_resources' THEN `number` END) AS waiting_resources,
  SUM(CASE WHEN `name` = 'egpu_queue_waiting_gangs' THEN `number` END) AS waiting_gangs,
  COUNT(CASE WHEN `name` = 'egpu_queue_info' THEN 1 END) AS info_minutes,
  COUNT(DISTINCT CASE WHEN `name` <> 'egpu_queue_info' THEN CAST(minute_time AS TIMESTAMP_LTZ(3)) END) AS minutes_seen,
  SUM(CASE WHEN `name` = 'egpu_gangs_admitted_total' THEN growth END) AS admitted,
  SUM(CASE WHEN `name` = 'egpu_gang_wait_seconds_sum' THEN growth END) AS wait_seconds,
  SUM(CASE WHEN `name` = 'egpu_pods_evicted_total' AND `cause` = 'priority' THEN growth END) AS evicted_priority,
  SUM(CASE WHEN `name` = 'egpu_pods_evicted_total' AND `cause` = 'reclaim' THEN growth END) AS evicted_reclaim,
  SUM(CASE WHEN `name` = 'egpu_pods_evicted_total' AND `cause` = 'rollback' THEN growth END) AS evicted_rollback,
  SUM(CASE WHEN `name` = 'egpu_pods_evicted_total' AND `cause` = 'node' THEN growth END) AS evicted_node,
  SUM(CASE WHEN `name` = 'egpu_pods_evicted_total' AND `cause` = 'bypass' THEN growth END) AS evicted_bypass
FROM TABLE(TUMBLE(TABLE queue_steps, DESCRIPTOR(minute_time), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, `cluster`, `queue`, `resource`;

EXECUTE STATEMENT SET
BEGIN

-- Shares have an empty card_memory_bytes: the rows of their cards say it. Restarts are empty: see the page.
INSERT INTO usage_hourly
SELECT
  `cluster`, `namespace`, `queue`, `gang`, `pod`, `container`, `node`, `uuid`, `model`, `class`, window_start,
  CASE WHEN `pod` = '' THEN allocated ELSE granted END,
  card_memory,
  CASE WHEN `pod` = '' THEN fb_max * 1048576 ELSE used_max END,
  CASE WHEN `pod` = '' THEN fb_mean * 1048576 ELSE used_mean END,
  cores,
  CASE WHEN `pod` = '' THEN util_mean / 100 * util_minutes * 60 ELSE compute END,
  CASE
    WHEN `pod` = '' THEN card_minutes * CAST(60 AS DOUBLE)
    WHEN held IS NOT NULL THEN held
    WHEN used_minutes > 0 THEN used_minutes * CAST(60 AS DOUBLE)
    ELSE granted_minutes * CAST(60 AS DOUBLE)
  END,
  COALESCE(suspended, CAST(0 AS DOUBLE)),
  CASE WHEN `pod` = '' THEN card_minutes WHEN used_minutes > 0 THEN used_minutes ELSE granted_minutes END,
  CASE WHEN `pod` = '' THEN util_max / 100 ELSE compute_max END,
  launch_wait,
  CAST(NULL AS DOUBLE), CAST(NULL AS DOUBLE),
  DATE_FORMAT(window_start, 'yyyy-MM-dd')
FROM hours
WHERE granted IS NOT NULL OR card_memory IS NOT NULL;

INSERT INTO queue_hourly
SELECT
  `cluster`, `queue`, `parent`, `resource`, window_start, used, deserved, guarantee, capability,
  CASE
    WHEN waiting_gangs IS NOT NULL THEN waiting_gangs / GREATEST(info_minutes, minutes_seen)
    ELSE COALESCE(waiting_resources, CAST(0 AS DOUBLE))
  END,
  COALESCE(admitted, CAST(0 AS DOUBLE)), COALESCE(wait_seconds, CAST(0 AS DOUBLE)),
  COALESCE(evicted_priority, CAST(0 AS DOUBLE)), COALESCE(evicted_reclaim, CAST(0 AS DOUBLE)),
  COALESCE(evicted_rollback, CAST(0 AS DOUBLE)), COALESCE(evicted_node, CAST(0 AS DOUBLE)),
  COALESCE(evicted_bypass, CAST(0 AS DOUBLE)),
  minutes_seen, DATE_FORMAT(window_start, 'yyyy-MM-dd')
FROM queue_hours
WHERE minutes_seen > 0;

END;
