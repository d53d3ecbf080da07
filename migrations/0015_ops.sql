-- Why: what operators need that the tables did not give cheaply: sessions of browsers, queues that are paused,
-- what happened minute by minute, and indexes for the questions of the dashboard, so that none of them walks
-- over all orders or all jobs.
-- Previous release: survives. It knows none of these tables; it goes on to work on a queue that is paused,
-- until its workers are replaced.

-- A browser that signed in with a key of scope ops. The cookie is 256 random bits, of which the hash is kept.
-- A session is worth what its key is worth at each request: it ends with the key.
create table onehold.browser_sessions (
    shop_id int not null references onehold.shops (id),
    hash bytea not null,
    -- Of the key it was opened with. No reference: the installation's first key stands in the settings.
    key_hash bytea not null,
    key_name text not null,
    opened_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    primary key (shop_id, hash)
);
create index browser_sessions_by_end on onehold.browser_sessions (shop_id, expires_at);

-- Queues on which nobody shall work. Of the whole installation, and so in the schema of the queue, which has no shops.
create table apalis.paused_queues (
    queue text primary key,
    paused_at timestamptz not null default clock_timestamp(),
    paused_by text not null
);

-- What happened in each minute, by kind of event: written by the housekeeping once a minute is over.
create table onehold.minutes (
    shop_id int not null references onehold.shops (id),
    minute timestamptz not null,
    -- The kind of the order's event; of a refusal `refused:KIND`.
    kind text not null,
    n bigint not null,
    -- Seconds from the placing of the order to this event, of the middle one and of the slowest in a hundred.
    p50 float8,
    p99 float8,
    primary key (shop_id, minute, kind)
);

-- Finds the events of a minute. A block-range index costs the writers next to nothing, as events come in the
-- order of their time.
create index order_events_by_time on onehold.order_events using brin (at)
    with (pages_per_range = 16, autosummarize = on);

-- Orders whose money needs a person.
create index orders_by_trouble on onehold.orders (shop_id, payment_state, id)
    where payment_state in ('late', 'mismatch', 'refund_due');

-- Dead letters among a million finished jobs.
create index jobs_dead on apalis.jobs (job_type, done_at) where status = 'Killed';
