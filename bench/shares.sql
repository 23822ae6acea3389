-- The rows of host_user_shares, from the stored counts, in one statement: the same columns in the same order.
-- Names are folded by the macros that bench/resolution.py defines; $home is replaced by the folder of the tables.
COPY (
    WITH pairs AS MATERIALIZED (
        SELECT document_hostname, document_username, sum(events)::BIGINT AS events,
               min(day) AS first_seen, max(day) AS last_seen,
               bit_or(1::UBIGINT << (day - DATE '$first')::UBIGINT) AS days
        FROM read_parquet('$home/logon_counts/*.parquet')
        GROUP BY ALL
    ),
    document_hosts AS MATERIALIZED (
        SELECT document_hostname, fold(document_hostname) AS hostname
        FROM (SELECT DISTINCT document_hostname FROM pairs)
        WHERE hostname IS NOT NULL
    ),
    document_users AS MATERIALIZED (
        SELECT document_username, fold_user(document_username) AS username
        FROM (SELECT DISTINCT document_username FROM pairs)
        WHERE NOT excluded(username) AND NOT excluded(fold(document_username))
    ),
    host_spellings AS (
        SELECT hostname, list(document_hostname ORDER BY document_hostname) AS hostname_spellings
        FROM document_hosts
        GROUP BY ALL
    ),
    totals AS (
        SELECT hostname, username, sum(events)::BIGINT AS events,
               min(first_seen) AS first_seen, max(last_seen) AS last_seen,
               list(DISTINCT document_username ORDER BY document_username) AS username_spellings,
               bit_count(bit_or(days))::BIGINT AS active_days
        FROM pairs JOIN document_hosts USING (document_hostname) JOIN document_users USING (document_username)
        GROUP BY ALL
    )
    SELECT hostname, username, events,
           sum(events) OVER (PARTITION BY hostname)::BIGINT AS total_events,
           events / total_events AS share,
           row_number() OVER (PARTITION BY hostname ORDER BY events DESC, username) AS rank,
           first_seen, last_seen, username_spellings, hostname_spellings,
           active_days, events AS weight, total_events AS total_weight
    FROM totals JOIN host_spellings USING (hostname)
    ORDER BY hostname, rank
) TO '$home/shares_of_duckdb.parquet' (FORMAT parquet, COMPRESSION zstd)
