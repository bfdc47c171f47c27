-- Fairturn on PostgreSQL: the channels of a round (docs/semantics.md §4.3). A channel belongs to the
-- round if it has something ready. The ready index is ordered by channel, so the next channel is one probe.
--
-- Hints (p_channels in ascending order, and a position for each: p_ranks, p_dues, p_ids) say how far the
-- consumer has read each channel. The dead index entries before a hint are not visited.

-- The next p_most channels after p_after (NULL: from the start), up to p_upto. A hinted channel is entered
-- at its hint, and only the gaps between hinted channels are probed. `hints` has, for each channel, the index
-- of the hint to read it from; NULL: read it from its start. Hints serve only a queue of one version.
CREATE OR REPLACE FUNCTION fairturn.walk(p_lane int, p_versions int[], p_after text, p_upto text, p_most int,
  p_channels text[], p_ranks int[], p_dues bigint[], p_ids bigint[], OUT channels text[], OUT hints int[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  -- Above every name: names have at most 255 bytes.
  v_top CONSTANT text COLLATE "C" := repeat(chr(1114111), 64);
  v_upto text COLLATE "C" := coalesce(p_upto, v_top);
  -- No name lies between a name and the name || chr(1): a text holds no NUL.
  v_from text COLLATE "C" := coalesce(p_after || chr(1), '');
  v_version int := p_versions[1];
  v_k int := 1; -- the next hint
BEGIN
  IF cardinality(p_versions) > 1 THEN
    channels := ARRAY(SELECT DISTINCT c COLLATE "C" FROM unnest(p_versions) v CROSS JOIN LATERAL
      unnest((fairturn.walk(p_lane, ARRAY[v], p_after, p_upto, p_most, '{}', '{}', '{}', '{}')).channels) c
      ORDER BY 1 LIMIT p_most);
    hints := array_fill(NULL::int, ARRAY[cardinality(channels)]);
    RETURN;
  END IF;
  WHILE p_channels[v_k] < v_from LOOP
    v_k := v_k + 1;
  END LOOP;
  IF p_channels[v_k] IS NULL THEN
    -- No hints ahead: plain probes.
    channels := ARRAY(
      WITH RECURSIVE step(channel, n) AS (
        SELECT NULL::text COLLATE "C", 0
        UNION ALL
        SELECT g.channel, w.n + 1
        FROM step w CROSS JOIN LATERAL (
          SELECT m.channel FROM fairturn.message m
            WHERE m.lane = p_lane AND m.version = v_version AND m.state = 'r'
              AND m.channel >= coalesce(w.channel || chr(1), v_from) AND m.channel <= v_upto
            ORDER BY m.channel LIMIT 1) g
        WHERE w.n < p_most
      )
      SELECT channel FROM step OFFSET 1);
    hints := array_fill(NULL::int, ARRAY[cardinality(channels)]);
  ELSE
    -- One step is a channel found in the gap before the next hint (g), or the hinted channel itself (h).
    -- That one is live if it has something above the hint's rank, or ahead of the hint (p).
    -- (OFFSET 0 keeps the planner from copying a probe into every place that uses its result.)
    SELECT coalesce(array_agg(s.channel) FILTER (WHERE s.live), '{}'), coalesce(array_agg(s.hint) FILTER (WHERE s.live), '{}')
      INTO walk.channels, walk.hints
      FROM (
        WITH RECURSIVE step(channel, k, live, hint, n) AS (
          SELECT NULL::text COLLATE "C", v_k, false, NULL::int, 0
          UNION ALL
          SELECT coalesce(g.channel, h.channel) COLLATE "C",
                 CASE WHEN g.channel IS NULL THEN w.k + 1 ELSE w.k END,
                 g.channel IS NOT NULL OR p.above OR p.ahead,
                 CASE WHEN g.channel IS NULL AND NOT p.above THEN w.k END,
                 w.n + (g.channel IS NOT NULL OR p.above OR p.ahead)::int
          FROM step w
          CROSS JOIN LATERAL (SELECT CASE WHEN p_channels[w.k] <= v_upto THEN p_channels[w.k] END AS channel OFFSET 0) h
          CROSS JOIN LATERAL (SELECT (
            SELECT m.channel FROM fairturn.message m
              WHERE m.lane = p_lane AND m.version = v_version AND m.state = 'r'
                AND m.channel >= coalesce(w.channel || chr(1), v_from)
                AND m.channel < coalesce(h.channel, v_top) COLLATE "C" AND m.channel <= v_upto
              ORDER BY m.channel LIMIT 1) AS channel OFFSET 0) g
          CROSS JOIN LATERAL (SELECT
            CASE WHEN g.channel IS NULL AND h.channel IS NOT NULL THEN EXISTS (
              SELECT 1 FROM fairturn.message m WHERE m.lane = p_lane AND m.version = v_version
                AND m.channel = h.channel AND m.state = 'r' AND m.rank < p_ranks[w.k]) END AS above,
            CASE WHEN g.channel IS NULL AND h.channel IS NOT NULL THEN EXISTS (
              SELECT 1 FROM fairturn.message m WHERE m.lane = p_lane AND m.version = v_version
                AND m.channel = h.channel AND m.state = 'r'
                AND (m.rank, m.due_at, m.id) > (p_ranks[w.k], p_dues[w.k], p_ids[w.k])) END AS ahead OFFSET 0) p
          WHERE w.n < p_most AND coalesce(g.channel, h.channel) IS NOT NULL
        )
        SELECT * FROM step) s;
  END IF;
END $$;

-- The next p_most channels of the round that began after p_start. They come after `after`, up to `upto`; both
-- are moved on for the next call. `circled`: these are the last ones.
CREATE OR REPLACE FUNCTION fairturn.walk_round(p_lane int, p_versions int[], p_start text, INOUT after text, INOUT upto text,
  p_most int, p_channels text[], p_ranks int[], p_dues bigint[], p_ids bigint[],
  OUT channels text[], OUT hints int[], OUT circled boolean)
LANGUAGE plpgsql STABLE AS $$
DECLARE w record;
BEGIN
  w := fairturn.walk(p_lane, p_versions, after, upto, p_most, p_channels, p_ranks, p_dues, p_ids);
  channels := w.channels;
  hints := w.hints;
  IF cardinality(channels) < p_most AND upto IS NULL AND p_start IS NOT NULL THEN
    -- The end of the names: go on from the first name, up to where the round began.
    upto := p_start;
    w := fairturn.walk(p_lane, p_versions, NULL, upto, p_most - cardinality(channels), p_channels, p_ranks, p_dues, p_ids);
    channels := channels || w.channels;
    hints := hints || w.hints;
  END IF;
  circled := cardinality(channels) < p_most;
  IF NOT circled THEN
    after := channels[p_most];
  END IF;
END $$;

-- The next p_most hinted channels of the round that began after p_start, and the hints to read them from.
CREATE OR REPLACE FUNCTION fairturn.walk_hints(p_lane int, p_version int, p_start text, p_most int, p_channels text[],
  p_ranks int[], OUT channels text[], OUT hints int[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT array_agg(x.channel), array_agg(CASE WHEN NOT x.above THEN x.k END) INTO channels, hints FROM (
    SELECT h.channel, h.k::int AS k, EXISTS (SELECT 1 FROM fairturn.message m
        WHERE m.lane = p_lane AND m.version = p_version AND m.channel = h.channel AND m.state = 'r'
          AND m.rank < h.rank) AS above
    FROM unnest(p_channels, p_ranks) WITH ORDINALITY h(channel, rank, k)
    ORDER BY h.channel COLLATE "C" <= p_start, h.k LIMIT p_most) x;
END $$;
