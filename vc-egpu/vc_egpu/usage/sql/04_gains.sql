-- Gains: cards that each share would need for itself, against the cards in use. What a card saved in an hour is told
-- as suspension first, then what was promised more than once, then low next to high, and slices take the rest.

-- TABLE gains_of_cards: by card and hour, in seconds of a card.
SELECT cluster, model, uuid, hour_index, unshared_seconds, used_seconds, saved_seconds, by_suspension,
  by_oversubscription, by_colocation, saved_seconds - by_suspension - by_oversubscription - by_colocation AS by_slicing
FROM (
  SELECT b.*, CASE WHEN high_active_seconds > 0.0
      THEN LEAST(low_active_seconds, saved_seconds - by_suspension - by_oversubscription) ELSE 0.0 END AS by_colocation
  FROM (
    SELECT a.*, LEAST(GREATEST(promised_seconds - seconds, 0.0), saved_seconds - by_suspension) AS by_oversubscription
    FROM (
      SELECT k.*, held_seconds AS unshared_seconds, longest_held_seconds AS used_seconds,
        held_seconds - longest_held_seconds AS saved_seconds,
        LEAST(suspended_seconds, held_seconds - longest_held_seconds) AS by_suspension
      FROM card_hours k
      WHERE shares > 0
    ) a
  ) b
) c;

-- TABLE gains: by cluster and model, in card-hours.
SELECT cluster, model,
  SUM(unshared_seconds) / 3600.0 AS unshared_card_hours, SUM(used_seconds) / 3600.0 AS used_card_hours,
  SUM(saved_seconds) / 3600.0 AS saved_card_hours, SUM(by_slicing) / 3600.0 AS by_slicing_card_hours,
  SUM(by_colocation) / 3600.0 AS by_colocation_card_hours,
  SUM(by_oversubscription) / 3600.0 AS by_oversubscription_card_hours,
  SUM(by_suspension) / 3600.0 AS by_suspension_card_hours
FROM gains_of_cards
GROUP BY cluster, model
ORDER BY cluster, model;

-- TABLE gains_by_hour: cards needed without sharing, and cards in use, in each hour.
SELECT hour_index, SUM(unshared_seconds) / 3600.0 AS unshared_cards, SUM(used_seconds) / 3600.0 AS used_cards
FROM gains_of_cards
GROUP BY hour_index
ORDER BY hour_index;
