-- Why: a shop is told what was decided. What is to be told is written in the transaction that decides, by a trigger on
-- the history, so that no path that writes history can forget it, and a rollback takes it along.
-- Previous release: survives; its decisions are told too, and delivered once a worker of this release runs.

-- Where a shop wants to be told. A disabled one stays disabled: its place is taken by a new one.
create table onehold.endpoints (
    shop_id int not null references onehold.shops (id),
    id uuid not null default onehold.uuid_v7(),
    url text not null,
    -- Signing needs the secret itself, so it cannot be hashed.
    secret text not null,
    -- Whether it may be at an address that the internet does not reach: a loopback, private or link-local one.
    allow_private boolean not null default false,
    created_at timestamptz not null default clock_timestamp(),
    disabled_at timestamptz,
    disabled_because text,
    primary key (shop_id, id)
);

-- One row per decision of a shop that has an endpoint; its id is the webhook-id. What it says is read from the history,
-- which does not change; only `stock.low`, which belongs to no order, brings its own data.
create table onehold.outbound_events (
    shop_id int not null,
    id uuid not null default onehold.uuid_v7(),
    type text not null,
    order_id uuid,
    history_id bigint,
    at timestamptz not null,
    data jsonb,
    primary key (shop_id, id),
    constraint one_outbound_event_per_decision unique (shop_id, order_id, history_id),
    constraint an_outbound_event_says_something check ((order_id is null) = (data is not null)),
    constraint outbound_type_is_known check (type in
        ('order.reserved', 'order.refused', 'order.converted', 'order.expired', 'order.cancelled', 'order.released',
         'order.refund_due', 'stock.low'))
);
create index outbound_events_by_time on onehold.outbound_events (shop_id, at, id);

-- What is to be delivered where. `due_at` is both the retry's time and the lease: who takes one sets it to the lease's end.
create table onehold.deliveries (
    shop_id int not null,
    endpoint_id uuid not null,
    event_id uuid not null,
    order_id uuid,
    -- The event's place in its order's history.
    position bigint not null default 0,
    state text not null default 'pending',
    attempts int not null default 0,
    due_at timestamptz not null default clock_timestamp(),
    -- Who has the lease, so that a late comer does not write over what happened since.
    lease uuid,
    ended_at timestamptz,
    primary key (shop_id, endpoint_id, event_id),
    foreign key (shop_id, endpoint_id) references onehold.endpoints (shop_id, id),
    foreign key (shop_id, event_id) references onehold.outbound_events (shop_id, id),
    constraint delivery_state_is_known check (state in ('pending', 'delivered', 'given_up'))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index deliveries_due on onehold.deliveries (shop_id, endpoint_id, due_at) where state = 'pending';
create index deliveries_in_order on onehold.deliveries (shop_id, endpoint_id, order_id, position)
    where state = 'pending' and order_id is not null;

create table onehold.delivery_attempts (
    shop_id int not null,
    endpoint_id uuid not null,
    event_id uuid not null,
    id bigint generated always as identity,
    at timestamptz not null default clock_timestamp(),
    -- The answer's status; null: there was no answer.
    status int,
    error text,
    took_ms int not null,
    primary key (shop_id, endpoint_id, event_id, id),
    foreign key (shop_id, endpoint_id, event_id) references onehold.deliveries (shop_id, endpoint_id, event_id)
        on delete cascade
);

-- Once per statement that writes history, whatever it writes. Where no endpoint is live it costs one look at a
-- small table.
create function onehold.tell_outside() returns trigger
language plpgsql as $$
begin
    if exists (select from onehold.endpoints where disabled_at is null) then
        with told as (
            insert into onehold.outbound_events (shop_id, type, order_id, history_id, at)
            select f.shop_id, 'order.' || f.kind, f.order_id, f.id, f.at from fresh f
            where f.kind in ('reserved', 'refused', 'converted', 'expired', 'cancelled', 'released', 'refund_due')
              and exists (select from onehold.endpoints p where p.shop_id = f.shop_id and p.disabled_at is null)
            returning shop_id, id, order_id, history_id
        )
        insert into onehold.deliveries (shop_id, endpoint_id, event_id, order_id, position)
        select t.shop_id, p.id, t.id, t.order_id, t.history_id
        from told t join onehold.endpoints p on p.shop_id = t.shop_id and p.disabled_at is null;
    end if;
    return null;
end
$$;
create trigger decisions_are_told_outside after insert on onehold.order_events
    referencing new table as fresh
    for each statement execute function onehold.tell_outside();

-- RFC 3339 in UTC, whatever the session's time zone.
create function onehold.utc(at timestamptz) returns text
language sql stable as $$
    select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- Takes up to p_most due deliveries of an endpoint for p_lease, each the first that is pending of its order; those
-- that stand behind another are put off until it is due, and woken when it ends. Two statements: the second sees
-- what ended before the first had its locks.
create function onehold.take_deliveries(p_shop int, p_endpoint uuid, p_most int, p_lease interval)
returns table (event_id uuid, lease uuid, attempt int, type text, body text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_due uuid[];
    v_now timestamptz;
begin
    select array_agg(event_id) into v_due from (
        select d.event_id from onehold.deliveries d
        where d.shop_id = p_shop and d.endpoint_id = p_endpoint and d.state = 'pending'
          and d.due_at <= clock_timestamp()
          and exists (select from onehold.endpoints p
                      where p.shop_id = p_shop and p.id = p_endpoint and p.disabled_at is null)
        order by d.due_at, d.event_id limit p_most
        for update skip locked) due;
    v_now := clock_timestamp();
    return query
    with placed as (
        select d.event_id, (
            select max(e.due_at) from onehold.deliveries e
            where e.shop_id = p_shop and e.endpoint_id = p_endpoint and e.state = 'pending'
              and e.order_id = d.order_id and e.position < d.position) as behind
        from onehold.deliveries d
        where d.shop_id = p_shop and d.endpoint_id = p_endpoint and d.event_id = any (v_due)
    ), moved as (
        update onehold.deliveries d
        set due_at = case when l.behind is null then v_now + p_lease
                          else greatest(l.behind, v_now + interval '100 milliseconds') end,
            attempts = d.attempts + (l.behind is null)::int,
            lease = case when l.behind is null then gen_random_uuid() end
        from placed l
        where d.shop_id = p_shop and d.endpoint_id = p_endpoint and d.event_id = l.event_id
        returning d.event_id, d.lease, d.attempts
    )
    select m.event_id, m.lease, m.attempts, v.type, jsonb_build_object(
        'type', v.type,
        'timestamp', onehold.utc(v.at),
        'data', coalesce(v.data, jsonb_build_object(
            'order_id', v.order_id, 'reference', o.reference, 'metadata', coalesce(o.body -> 'metadata', '{}'),
            'actor', h.actor,
            -- Why each reservation is what it is stays inside: it can be long, and names what was not sold.
            'detail', case when v.type = 'order.reserved' and jsonb_typeof(h.detail -> 'reservations') = 'array'
                then h.detail || jsonb_build_object('reservations', (
                    select coalesce(jsonb_agg(r.value - 'reason' order by r.ordinality), '[]')
                    from jsonb_array_elements(h.detail -> 'reservations') with ordinality r))
                else h.detail end)
            || case when v.type = 'order.reserved' then jsonb_build_object('hold_expires_at', onehold.utc((h.detail ->> 'deadline')::timestamptz))
                    else '{}' end))::text
    from moved m
    join onehold.outbound_events v on v.shop_id = p_shop and v.id = m.event_id
    left join onehold.orders o on o.shop_id = p_shop and o.id = v.order_id
    left join onehold.order_events h on h.shop_id = p_shop and h.order_id = v.order_id and h.id = v.history_id
    where m.lease is not null;
end
$$;

-- Writes an attempt down, and what becomes of the delivery: delivered, given_up, or pending again after p_delay. An
-- attempt whose lease another has taken over is kept, and decides nothing. Gives whether it decided.
create function onehold.end_attempt(
    p_shop int, p_endpoint uuid, p_event uuid, p_lease uuid, p_state text, p_delay interval, p_status int,
    p_error text, p_took_ms int
) returns boolean
language plpgsql as $$
declare
    v_order uuid;
    v_found boolean;
begin
    update onehold.deliveries
    set state = p_state, lease = null, due_at = clock_timestamp() + p_delay,
        ended_at = case when p_state <> 'pending' then clock_timestamp() end
    where shop_id = p_shop and endpoint_id = p_endpoint and event_id = p_event and lease = p_lease
      and state = 'pending'
    returning order_id into v_order;
    v_found := found;
    insert into onehold.delivery_attempts (shop_id, endpoint_id, event_id, status, error, took_ms)
    values (p_shop, p_endpoint, p_event, p_status, p_error, p_took_ms);
    if v_found and p_state <> 'pending' then
        -- What stands behind it may go. Also where it is due already: somebody may be putting it off behind this one
        -- at this moment, and then this waits for him and wakes it afterwards.
        update onehold.deliveries set due_at = clock_timestamp()
        where shop_id = p_shop and endpoint_id = p_endpoint and order_id = v_order and state = 'pending'
          and lease is null;
    end if;
    return v_found;
end
$$;

-- Delivers again, from the first attempt: one event, or those of decisions from p_since (after the event p_after, where
-- a batch went before) until before p_until, at most p_most of them, oldest first. What is pending already is left as it
-- is. Gives how many it met, and the last of them.
create function onehold.replay_deliveries(
    p_shop int, p_endpoint uuid, p_event uuid, p_since timestamptz, p_after uuid, p_until timestamptz, p_most int,
    out replayed bigint, out last_at timestamptz, out last_id uuid
)
language plpgsql as $$
begin
    with picked as (
        select v.id, v.order_id, v.history_id, v.at from onehold.outbound_events v
        where v.shop_id = p_shop
          and (v.id = p_event or (p_event is null and (v.at, v.id) > (p_since, p_after) and v.at < p_until))
        order by v.at, v.id limit p_most
    ), put as (
        insert into onehold.deliveries as d (shop_id, endpoint_id, event_id, order_id, position)
        select p_shop, p_endpoint, id, order_id, coalesce(history_id, 0) from picked
        on conflict (shop_id, endpoint_id, event_id) do update
            set state = 'pending', attempts = 0, due_at = clock_timestamp(), lease = null, ended_at = null
            where d.state <> 'pending'
    )
    select count(*), max(at), (array_agg(id order by at desc, id desc))[1] into replayed, last_at, last_id from picked;
end
$$;

-- When stock runs low: available (on hand minus held) is at or under the shop's mark; 0 tells when nothing is left.
alter table onehold.shops
    add column low_stock int not null default 5,
    add constraint low_stock_is_sane check (low_stock between 0 and 1000000);

-- Which pools were told to be low, and have had nothing come in since.
create table onehold.low_pools (
    shop_id int not null,
    sku text not null,
    location text not null,
    told_at timestamptz not null default clock_timestamp(),
    primary key (shop_id, sku, location)
);

-- Tells that a pool is low, once until stock comes in. Gives whether it told.
create function onehold.tell_if_low(p_shop int, p_sku text, p_location text) returns boolean
language plpgsql as $$
declare
    v record;
    v_mark int := (select low_stock from onehold.shops where id = p_shop);
begin
    if not exists (select from onehold.endpoints where shop_id = p_shop and disabled_at is null)
       or exists (select from onehold.low_pools
                  where shop_id = p_shop and sku = p_sku and location = p_location) then
        return false;
    end if;
    select * into v from onehold.pool_figures(p_shop, p_sku, p_location);
    if v.on_hand - v.held > v_mark then
        return false;
    end if;
    insert into onehold.low_pools (shop_id, sku, location) values (p_shop, p_sku, p_location) on conflict do nothing;
    if not found then
        return false;
    end if;
    with told as (
        insert into onehold.outbound_events (shop_id, type, at, data)
        values (p_shop, 'stock.low', clock_timestamp(), jsonb_build_object('sku', p_sku, 'location', p_location,
            'on_hand', v.on_hand, 'held', v.held, 'available', greatest(v.on_hand - v.held, 0), 'mark', v_mark))
        returning id
    )
    insert into onehold.deliveries (shop_id, endpoint_id, event_id)
    select p_shop, p.id, t.id from told t join onehold.endpoints p on p.shop_id = p_shop and p.disabled_at is null;
    return true;
end
$$;

-- As before (0008), and what comes in ends "low".
create or replace function onehold.follow_movements() returns trigger
language plpgsql as $$
begin
    insert into onehold.stock_deltas (shop_id, sku, location, delta)
    select shop_id, sku, location, delta from fresh;
    insert into onehold.stock_levels (shop_id, sku, location)
    select distinct shop_id, sku, location from fresh
    on conflict do nothing;
    insert into onehold.locations (shop_id, name)
    select distinct shop_id, location from fresh where kind <> 'sale'
    on conflict do nothing;
    if exists (select from onehold.low_pools) then
        delete from onehold.low_pools l using fresh f
        where l.shop_id = f.shop_id and l.sku = f.sku and l.location = f.location and f.delta > 0;
    end if;
    return null;
end
$$;

-- As before (0008), and tells where little is left.
create or replace function onehold.refill_if_needed(p_shop int, p_sku text, p_location text) returns bigint
language plpgsql as $$
declare
    v_put bigint := 0;
begin
    -- Waits for whoever has the lock: it may have drawn the pool down since it refilled it.
    perform pg_advisory_xact_lock(onehold.pool_lock_key(p_shop, p_sku, p_location));
    if onehold.needs_refill(p_shop, p_sku, p_location) then
        v_put := onehold.refill_locked(p_shop, p_sku, p_location);
    end if;
    perform onehold.tell_if_low(p_shop, p_sku, p_location);
    return v_put;
end
$$;

-- As before (0008), and tells which of the pools on the way are low: the refill job meets only those that buyers
-- happened to wake.
create or replace function onehold.wake_pools(p_shop int, p_limit int, out looked bigint, out woken bigint)
language plpgsql as $$
declare
    v_from record;
    v_last record;
begin
    looked := 0;
    woken := 0;
    insert into onehold.pool_walks (shop_id) values (p_shop) on conflict do nothing;
    select w.sku, w.location into v_from from onehold.pool_walks w where w.shop_id = p_shop for update skip locked;
    if not found then
        return;
    end if;
    for v_last in
        select l.sku, l.location from onehold.stock_levels l
        where l.shop_id = p_shop and (l.sku, l.location) > (v_from.sku, v_from.location)
        order by l.sku, l.location
        limit p_limit
    loop
        looked := looked + 1;
        if onehold.needs_refill(p_shop, v_last.sku, v_last.location) then
            if onehold.enqueue_refill(p_shop, v_last.sku, v_last.location) then
                woken := woken + 1;
            end if;
        else
            perform onehold.tell_if_low(p_shop, v_last.sku, v_last.location);
        end if;
        v_from := v_last;
    end loop;
    if looked < p_limit then
        v_from.sku := '';
        v_from.location := '';
    end if;
    update onehold.pool_walks set sku = v_from.sku, location = v_from.location where shop_id = p_shop;
end
$$;
