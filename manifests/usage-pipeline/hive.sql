-- The tables for Hive, Spark and Trino. After each day: MSCK REPAIR TABLE usage_hourly; MSCK REPAIR TABLE queue_hourly.
CREATE EXTERNAL TABLE IF NOT EXISTS usage_hourly (
  `cluster` STRING, `namespace` STRING, `queue` STRING, `gang` STRING, `pod` STRING, `container` STRING,
  `node` STRING, `uuid` STRING, `model` STRING, `class` STRING,
  `hour_start` TIMESTAMP,
  `memory_granted_bytes` DOUBLE, `card_memory_bytes` DOUBLE, `memory_used_max_bytes` DOUBLE,
  `memory_used_mean_bytes` DOUBLE, `cores_granted_ratio` DOUBLE, `compute_used_seconds` DOUBLE,
  `held_seconds` DOUBLE, `suspended_seconds` DOUBLE,
  `minutes_seen` BIGINT,
  `compute_used_max_ratio` DOUBLE, `launch_wait_share_seconds` DOUBLE, `restarts` DOUBLE, `oom_kills` DOUBLE
) PARTITIONED BY (`dt` STRING) STORED AS PARQUET LOCATION 's3://usage/usage_hourly';

CREATE EXTERNAL TABLE IF NOT EXISTS queue_hourly (
  `cluster` STRING, `queue` STRING, `parent` STRING, `resource` STRING,
  `hour_start` TIMESTAMP,
  `used` DOUBLE, `deserved` DOUBLE, `guarantee` DOUBLE, `capability` DOUBLE, `waiting` DOUBLE, `admitted` DOUBLE,
  `wait_seconds` DOUBLE, `evicted_priority` DOUBLE, `evicted_reclaim` DOUBLE, `evicted_rollback` DOUBLE,
  `evicted_node` DOUBLE, `evicted_bypass` DOUBLE,
  `minutes_seen` BIGINT
) PARTITIONED BY (`dt` STRING) STORED AS PARQUET LOCATION 's3://usage/queue_hourly';
