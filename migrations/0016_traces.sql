-- Why: a job begins in another process than the request that put it in. For an installation that gathers traces it
-- stands here which trace a job goes on with. Written and read only where a collector is named.
-- Previous release: survives. It knows nothing of it.

create table onehold.traces (
    shop_id int not null references onehold.shops (id),
    -- What the job is about, by a name that is known before it is stored: `key:` and the order's idempotency key, or
    -- the provider and the id of its event.
    about text not null,
    -- W3C Trace Context.
    traceparent text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (shop_id, about)
);
create index traces_by_time on onehold.traces (shop_id, at);
