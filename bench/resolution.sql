-- The same rules as `ownership`, from the stored counts and assets to owner_decisions, in one statement.
-- Names are folded by the macros that bench/resolution.py defines; $home is replaced by the folder of the tables.
COPY (
    WITH pairs AS MATERIALIZED (
        SELECT document_hostname, document_username, sum(events)::BIGINT AS events,
               min(day) AS first_seen, max(day) AS last_seen
        FROM read_parquet('$home/logon_counts/*.parquet')
        GROUP BY ALL
    ),
    document_hosts AS MATERIALIZED (
        SELECT document_hostname, fold(document_hostname) AS hostname
        FROM (SELECT DISTINCT document_hostname FROM pairs)
    ),
    document_users AS MATERIALIZED (
        SELECT document_username, fold_user(document_username) AS username, fold(document_username) AS whole
        FROM (SELECT DISTINCT document_username FROM pairs)
    ),
    assets AS MATERIALIZED (
        SELECT host_id, owner_ids, list_filter(list_transform(hostnames, lambda name: fold(name)), lambda name: name IS NOT NULL) AS names
        FROM '$home/inventory_hosts.parquet'
    ),
    subjects AS MATERIALIZED (
        SELECT row_number() OVER () AS subject, *, names[1] AS hostname
        FROM (
            FROM assets
            UNION ALL
            SELECT DISTINCT NULL, []::VARCHAR[], [hostname]
            FROM document_hosts ANTI JOIN (SELECT unnest(names) AS hostname FROM assets) USING (hostname)
            WHERE hostname IS NOT NULL
        )
    ),
    names AS (
        SELECT DISTINCT document_hostname, subject
        FROM (SELECT subject, unnest(names) AS hostname FROM subjects) JOIN document_hosts USING (hostname)
    ),
    totals AS (
        SELECT subject, username, sum(events)::BIGINT AS events,
               min(first_seen) AS first_seen, max(last_seen) AS last_seen
        FROM pairs JOIN names USING (document_hostname) JOIN document_users USING (document_username)
        WHERE NOT excluded(username) AND NOT excluded(whole)
        GROUP BY ALL
    ),
    leaders AS (
        SELECT subject, sum(events)::BIGINT AS total_events, count(*) AS user_count,
               min_by(
                   struct_pack(username, events, first_seen, last_seen), struct_pack(less := -events, username), 2
               ) AS top
        FROM totals
        GROUP BY subject
    ),
    known AS MATERIALIZED (
        SELECT user_id, fold_user(unnest(user_value)) AS username, 'user_email' AS matched_by, 0 AS place
        FROM '$home/inventory_users.parquet'
        UNION ALL
        SELECT user_id, fold_user(unnest(directory_user_sam_account_name)), 'directory_user_sam_account_name', 1
        FROM '$home/inventory_users.parquet'
        UNION ALL
        SELECT user_id, fold_user(unnest(directory_user_surname)), 'directory_user_surname', 2
        FROM '$home/inventory_users.parquet'
    ),
    candidates AS (
        SELECT username, any_value(matched_by) AS matched_by, list(DISTINCT user_id ORDER BY user_id) AS candidate_ids
        FROM known JOIN (SELECT username, min(place) AS place FROM known GROUP BY username) USING (username, place)
        GROUP BY username
    ),
    evidence AS (
        SELECT hostname, host_id, owner_ids, top[1].username AS username, coalesce(top[1].events, 0) AS events,
               coalesce(total_events, 0) AS total_events, top[1].events / total_events AS share,
               coalesce(user_count, 0) AS user_count, top[2].username AS runner_up_username,
               top[2].events AS runner_up_events, top[1].first_seen AS first_seen, top[1].last_seen AS last_seen,
               CASE
                   WHEN hostname IS NULL THEN 'no_hostname'
                   WHEN total_events IS NULL THEN 'no_logons'
                   WHEN total_events < 1 THEN 'too_few_events'
                   WHEN user_count = 1 THEN 'single_user'
                   WHEN 100 * top[1].events > 60 * total_events THEN 'majority'
                   ELSE 'no_majority'
               END AS evidence
        FROM subjects LEFT JOIN leaders USING (subject)
        WHERE host_id IS NOT NULL OR total_events IS NOT NULL
    ),
    matched AS (
        SELECT evidence.*,
               CASE
                   WHEN evidence NOT IN ('single_user', 'majority') THEN NULL
                   WHEN len(candidate_ids) = 1 THEN 'matched'
                   WHEN len(candidate_ids) > 1 THEN 'ambiguous_user'
                   ELSE 'no_user_asset'
               END AS match,
               CASE WHEN match IS NOT NULL THEN matched_by END AS matched_by,
               CASE WHEN match IS NOT NULL THEN coalesce(candidate_ids, []) ELSE [] END AS candidate_ids,
               CASE WHEN match = 'matched' THEN candidate_ids[1] END AS resolved_owner
        FROM evidence LEFT JOIN candidates USING (username)
    )
    SELECT hostname, host_id, evidence, match,
           CASE
               WHEN host_id IS NULL THEN 'no_host'
               WHEN resolved_owner IS NOT NULL AND len(owner_ids) = 0 THEN 'write'
               WHEN resolved_owner IS NOT NULL AND list_contains(owner_ids, resolved_owner) THEN 'agree'
               WHEN resolved_owner IS NOT NULL THEN 'conflict'
               WHEN len(owner_ids) > 0 THEN 'keep'
               ELSE 'none'
           END AS action,
           username, events, total_events, share, user_count, runner_up_username, runner_up_events,
           first_seen, last_seen, resolved_owner, matched_by, candidate_ids,
           CASE WHEN len(owner_ids) > 0 THEN array_to_string(owner_ids, ',') END AS existing_owner,
           DATE '$first' AS window_from, DATE '$last' AS window_to, 60 AS threshold_percent,
           TIMESTAMPTZ '$decided_at' AS decided_at, 'bench' AS run_id
    FROM matched
    ORDER BY hostname NULLS LAST, host_id NULLS LAST
) TO '$home/decisions_of_duckdb.parquet' (FORMAT parquet, COMPRESSION zstd)
