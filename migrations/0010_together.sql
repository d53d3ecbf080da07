-- Why: orders that ask for stock at the same moment were reserved in one commit, but one by one. Most of them want
-- the same few pools, so they are reserved as a set: one look at each pool, and one statement for all their rows.
-- And what a pool has held was counted hold by hold at each refill, so that a sale grew slower with every sale
-- before it: it is rolled up now, as on-hand is.
-- Previous release: survives; it calls the same functions and gets the same answers.

-- What changed of a pool since its last roll-up: of on-hand by a movement, of held by holds that began or ended.
alter table onehold.stock_deltas
    alter column delta set default 0,
    add column held bigint not null default 0;
-- Held as rolled up so far, beside on-hand.
alter table onehold.stock_levels add column held bigint not null default 0;

-- Whoever reserves waits until this migration is done: no hold may begin between the count and the trigger.
lock table onehold.reservations in share row exclusive mode;
insert into onehold.stock_levels (shop_id, sku, location, held)
select shop_id, sku, location, sum(quantity) from onehold.reservations
where state = 'held' and sku is not null
group by shop_id, sku, location
on conflict (shop_id, sku, location) do update set held = excluded.held;

-- Whatever begins or ends holds, what is held follows: one row for each pool of a statement, however many holds.
create function onehold.follow_stock_holds() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into onehold.stock_deltas (shop_id, sku, location, held)
        select shop_id, sku, location, sum(quantity) from fresh
        where state = 'held' and sku is not null
        group by shop_id, sku, location;
    elsif tg_op = 'DELETE' then
        insert into onehold.stock_deltas (shop_id, sku, location, held)
        select shop_id, sku, location, -sum(quantity) from gone
        where state = 'held' and sku is not null
        group by shop_id, sku, location;
    else
        insert into onehold.stock_deltas (shop_id, sku, location, held)
        select shop_id, sku, location, sum(n) from (
            select shop_id, sku, location, quantity as n from fresh where state = 'held' and sku is not null
            union all
            select shop_id, sku, location, -quantity from gone where state = 'held' and sku is not null) moved
        group by shop_id, sku, location
        having sum(n) <> 0;
    end if;
    return null;
end
$$;
create trigger new_holds_count_as_held after insert on onehold.reservations
    referencing new table as fresh
    for each statement execute function onehold.follow_stock_holds();
create trigger ended_holds_count_no_more after update on onehold.reservations
    referencing old table as gone new table as fresh
    for each statement execute function onehold.follow_stock_holds();
create trigger deleted_holds_count_no_more after delete on onehold.reservations
    referencing old table as gone
    for each statement execute function onehold.follow_stock_holds();

-- What one pool has at this instant, as one statement sees it: on-hand, held, pooled. Its cost grows with what has
-- changed since the last roll-up, not with what is held. Not in plain SQL, which would be planned anew at each call.
create or replace function onehold.pool_figures(
    p_shop int, p_sku text, p_location text, out on_hand bigint, out held bigint, out pooled bigint
)
language plpgsql stable as $$
begin
    select coalesce(l.rolled, 0) + d.delta, coalesce(l.held, 0) + d.held, u.pooled
    into on_hand, held, pooled
    from (select coalesce(sum(s.delta), 0) as delta, coalesce(sum(s.held), 0)::bigint as held from onehold.stock_deltas s
          where s.shop_id = p_shop and s.sku = p_sku and s.location = p_location) d
    cross join (select count(*) as pooled from onehold.pool_units
                where shop_id = p_shop and sku = p_sku and location = p_location) u
    left join onehold.stock_levels l on l.shop_id = p_shop and l.sku = p_sku and l.location = p_location;
end
$$;

-- Rolls up at most p_limit changes of one pool. Passes over rows that somebody has locked. Gives how many.
create function onehold.roll_up_pool(p_shop int, p_sku text, p_location text, p_limit bigint) returns bigint
language plpgsql as $$
declare
    v_ids bigint[];
    v_delta bigint;
    v_held bigint;
begin
    select array_agg(id order by id), sum(delta), sum(held) into v_ids, v_delta, v_held from (
        select id, delta, held from onehold.stock_deltas
        where shop_id = p_shop and sku = p_sku and location = p_location
        order by id limit p_limit for update skip locked) picked;
    if v_ids is null then
        return 0;
    end if;
    delete from onehold.stock_deltas
    where shop_id = p_shop and sku = p_sku and location = p_location
      and id between v_ids[1] and v_ids[cardinality(v_ids)] and id = any (v_ids);
    -- A pool may have holds and no movement yet, where they were typed by hand.
    insert into onehold.stock_levels as l (shop_id, sku, location, rolled, held)
    values (p_shop, p_sku, p_location, v_delta, v_held)
    on conflict (shop_id, sku, location) do update set rolled = l.rolled + v_delta, held = l.held + v_held;
    return cardinality(v_ids);
end
$$;

-- Rolls up what has changed since, at most p_limit changes. Gives how many. One pool after the other, each by its key:
-- this table is mostly empty and now and then holds a million rows that were imported, and a join planned for the
-- one is hopeless for the other.
create or replace function onehold.roll_up(p_shop int, p_limit int) returns bigint
language plpgsql as $$
declare
    v_pool record;
    v_count bigint := 0;
begin
    for v_pool in
        -- In one order, as every one who locks several levels.
        select sku, location, count(*) as n from (
            select sku, location from onehold.stock_deltas where shop_id = p_shop
            order by sku, location, id limit p_limit) appended
        group by sku, location order by sku, location
    loop
        v_count := v_count + onehold.roll_up_pool(p_shop, v_pool.sku, v_pool.location, v_pool.n);
    end loop;
    return v_count;
end
$$;

-- Puts units out up to the pool's bound, from what is neither held nor out. The caller holds the pool's lock,
-- and took it in an earlier statement, so that the figures here are newer than any other refill. Gives how
-- many were put out. While it looks and puts:
--   * a reservation moves units from pooled to held: their sum, and so the rest, stays;
--   * a conversion takes the same number from on-hand and held: the rest stays;
--   * a lapse, a cancellation, a receipt or a release makes the rest larger: it is put out next time;
--   * an adjustment that takes stock away, or another refill, waits for the same lock.
-- So what was counted as rest is still there when it is put out.
-- Where more is out than there is stock for (a forced movement found the rows locked), or than the bound allows
-- (it was lowered), rows that nobody has locked are taken in again; and a shortfall is settled as far as what is
-- held has ended or come in since.
-- New here: it rolls its pool up, so that a pool which sells fast stays cheap to look at between the housekeeping's
-- rounds.
create or replace function onehold.refill_locked(p_shop int, p_sku text, p_location text) returns bigint
language plpgsql as $$
declare
    v record;
    v_bound int := (select pool_bound from onehold.shops where id = p_shop);
    v_put bigint;
    v_taken bigint := 0;
    v_far bigint[];
begin
    perform onehold.roll_up_pool(p_shop, p_sku, p_location, 10000);
    -- Stragglers far below the window would make every search pass over all that was sold above them: they
    -- go back to the rest, and are put out anew at the top.
    select array_agg(unit order by unit) into v_far from (
        select unit from onehold.pool_units
        where shop_id = p_shop and sku = p_sku and location = p_location
          and unit < (select next_unit - v_bound from onehold.stock_levels
                      where shop_id = p_shop and sku = p_sku and location = p_location)
        for update skip locked) far;
    if v_far is not null then
        -- By key: by ctid it would be a look at every pool of the installation.
        delete from onehold.pool_units
        where shop_id = p_shop and sku = p_sku and location = p_location
          and unit between v_far[1] and v_far[cardinality(v_far)] and unit = any (v_far);
    end if;
    select * into v from onehold.pool_figures(p_shop, p_sku, p_location);
    v_put := least(v.on_hand - v.held - v.pooled, v_bound - v.pooled);
    if v_put < 0 then
        v_taken := onehold.take_in(p_shop, p_sku, p_location, -v_put);
    end if;
    -- Never upwards: what is lacking without a movement that said so is for `verify` to find.
    update onehold.stock_shortfalls
    set units = case when lacking.units > 0 then lacking.units else stock_shortfalls.units end,
        cleared_at = case when lacking.units <= 0 then clock_timestamp() end
    from (select v.held + v.pooled - v_taken - v.on_hand as units) lacking
    where shop_id = p_shop and sku = p_sku and location = p_location and cleared_at is null
      and stock_shortfalls.units > lacking.units;
    if v_put <= 0 then
        return 0;
    end if;
    insert into onehold.pool_units (shop_id, sku, location, unit)
    select p_shop, p_sku, p_location, l.next_unit + n
    from onehold.stock_levels l, generate_series(0, v_put - 1) n
    where l.shop_id = p_shop and l.sku = p_sku and l.location = p_location;
    update onehold.stock_levels l
    set next_unit = l.next_unit + v_put,
        low_unit = greatest(l.low_unit, l.next_unit + v_put - 2 * v_bound)
    where l.shop_id = p_shop and l.sku = p_sku and l.location = p_location;
    return v_put;
end
$$;

-- Reserves as many of the given orders as their first choice of location suffices for, each whole. The caller has
-- locked them, and they are placed and want stock only. Pools are drawn on in one order for everybody, and only
-- their refills are waited for. Gives the orders that were reserved; the others are as they were.
create function onehold.reserve_together(
    p_shop int, p_orders uuid[], p_deadlines timestamptz[], out reserved uuid[], out woke boolean
)
language plpgsql as $$
declare
    -- The lines, as arrays side by side; and the pools that they draw on, likewise.
    l_order uuid[];
    l_line smallint[];
    l_sku text[];
    l_location text[];
    l_quantity int[];
    l_asked jsonb[];
    g_sku text[] := '{}';
    g_location text[] := '{}';
    g_taken int[] := '{}';
    -- The units that were taken, and out of which of the pools.
    u_pool int[] := '{}';
    u_unit bigint[] := '{}';
    v_pool record;
    v_units bigint[];
    v_wanted int;
    v_used bigint;
    v_bound int := (select pool_bound from onehold.shops where id = p_shop);
begin
    woke := false;
    select array_agg(l.order_id), array_agg(l.line), array_agg(l.sku), array_agg(place.location),
           array_agg(l.quantity), array_agg(jsonb_build_object(
               'sku', l.sku, 'quantity', l.quantity, 'locations', l.locations, 'split', l.split))
    into l_order, l_line, l_sku, l_location, l_quantity, l_asked
    from onehold.order_lines l
    -- A line without a place keeps its order from being whole below.
    left join lateral (
        select s.location from onehold.stock_levels s
        where s.shop_id = p_shop and s.sku = l.sku and (l.locations is null or s.location = any (l.locations))
        -- As preferred; where all are equal, the fullest first, so that load spreads.
        order by array_position(l.locations, s.location),
                 case when l.locations is null and exists (
                     select from onehold.stock_levels o
                     where o.shop_id = p_shop and o.sku = s.sku and o.location <> s.location) then
                     (select count(*) from onehold.pool_units u
                      where u.shop_id = p_shop and u.sku = s.sku and u.location = s.location) end desc,
                 s.location
        limit 1) place on true
    where l.shop_id = p_shop and l.order_id = any (p_orders);

    for v_pool in
        select l.sku, l.location, sum(l.quantity) as wanted
        from unnest(l_sku, l_location, l_quantity) as l (sku, location, quantity)
        where l.location is not null
        group by l.sku, l.location
        order by l.sku, l.location
    loop
        -- More than a pool ever has is for the careful way, which draws on what is not put out as well.
        v_wanted := least(v_pool.wanted, v_bound);
        v_units := onehold.take_units(p_shop, v_pool.sku, v_pool.location, v_wanted);
        if cardinality(v_units) < v_wanted then
            -- They go back first: a refill puts out what is neither out nor held, and units that were taken and
            -- are not held yet would be put out a second time.
            insert into onehold.pool_units (shop_id, sku, location, unit)
            select p_shop, v_pool.sku, v_pool.location, u from unnest(v_units) u;
            -- Whoever is refilling it is waited for: if not, every order of this batch would go its own way, and
            -- wait for him there. All who wait for pools do so in the order of this loop.
            perform pg_advisory_xact_lock(onehold.pool_lock_key(p_shop, v_pool.sku, v_pool.location));
            v_units := onehold.take_units(p_shop, v_pool.sku, v_pool.location, v_wanted);
            if cardinality(v_units) < v_wanted then
                insert into onehold.pool_units (shop_id, sku, location, unit)
                select p_shop, v_pool.sku, v_pool.location, u from unnest(v_units) u;
                perform onehold.refill_locked(p_shop, v_pool.sku, v_pool.location);
                v_units := onehold.take_units(p_shop, v_pool.sku, v_pool.location, v_wanted);
            end if;
        -- To count what is left would cost every buyer. So about ten times while a pool is sold, by chance, a
        -- job looks whether it has fallen low.
        elsif random() < cardinality(v_units) / (v_bound / 10.0)
              and onehold.enqueue_refill(p_shop, v_pool.sku, v_pool.location) then
            woke := true;
        end if;
        g_sku := g_sku || v_pool.sku;
        g_location := g_location || v_pool.location;
        g_taken := g_taken || cardinality(v_units);
        u_pool := u_pool || array_fill(cardinality(g_taken), array[cardinality(v_units)]);
        u_unit := u_unit || v_units;
    end loop;

    with lines as (
        -- Who comes first in a pool: in the order of orders, so that what is short is short for the last.
        select l.*, sum(l.quantity) over (partition by l.sku, l.location order by l.order_id, l.line) as upto
        from unnest(l_order, l_line, l_sku, l_location, l_quantity, l_asked)
            as l (order_id, line, sku, location, quantity, asked)
    ), whole as (
        select l.order_id, min(o.deadline) as deadline
        from lines l
        join unnest(p_orders, p_deadlines) as o (id, deadline) on o.id = l.order_id
        left join unnest(g_sku, g_location, g_taken) as g (sku, location, taken)
            on g.sku = l.sku and g.location = l.location
        group by l.order_id
        having bool_and(coalesce(l.upto <= g.taken, false))
    ), held as (
        insert into onehold.reservations
            (shop_id, order_id, line, slot, state, sku, location, quantity, expires_at, reason)
        select p_shop, l.order_id, l.line, 1, 'held', l.sku, l.location, l.quantity, w.deadline,
               jsonb_build_object(
                   'asked', l.asked,
                   'tried', jsonb_build_array(jsonb_build_object('location', l.location, 'had', l.quantity)),
                   'taken', jsonb_build_object('location', l.location, 'quantity', l.quantity, 'from_pool', l.quantity))
        from whole w join lines l on l.order_id = w.order_id
        returning order_id, line, sku, location, quantity, expires_at, reason
    ), marked as (
        update onehold.orders o set status = 'reserved'
        from whole w
        where o.shop_id = p_shop and o.id = w.order_id and o.status = 'placed'
        returning o.id
    ), told as (
        insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
        select p_shop, h.order_id, 'reserved', 'worker', jsonb_build_object(
            'deadline', min(h.expires_at),
            'reservations', jsonb_agg(jsonb_build_object('line', h.line, 'sku', h.sku, 'location', h.location,
                                                         'quantity', h.quantity, 'reason', h.reason)
                                      order by h.line))
        from held h group by h.order_id
    )
    select coalesce(array_agg(m.id), '{}'), (select coalesce(sum(h.quantity), 0) from held h)
    into reserved, v_used
    from marked m;

    if v_used < cardinality(u_unit) then
        -- What was taken for orders that did not come to be whole goes back as it was.
        insert into onehold.pool_units (shop_id, sku, location, unit)
        select p_shop, g_sku[u.pool], g_location[u.pool], u.unit
        from (select pool, unit, row_number() over (partition by pool order by unit) as n
              from unnest(u_pool, u_unit) as t (pool, unit)) u
        where u.n > (select coalesce(sum(l.quantity), 0)
                     from unnest(l_order, l_sku, l_location, l_quantity) as l (order_id, sku, location, quantity)
                     where l.order_id = any (reserved) and l.sku = g_sku[u.pool] and l.location = g_location[u.pool]);
    end if;
    -- Money that came before its hold.
    perform onehold.enqueue_payments(p_shop, reserved, 'reserved');
end
$$;

-- Reserves those of the given orders that the quick way suffices for: placed, stock lines only, and enough
-- units at hand that nobody else has locked. First all of them as a set, then each of the rest by itself. Gives
-- reserved, decided (it is not placed any more) or apart (it needs the careful way: assets, refills, refusals, or
-- its lock is taken).
create or replace function onehold.reserve_batch(p_shop int, p_orders uuid[]) returns table (order_id uuid, outcome text, woke boolean)
language plpgsql as $$
declare
    v_placed uuid[];
    v_deadlines timestamptz[];
    v_decided uuid[];
    v_together record;
    v_order record;
    v_reserved jsonb;
    v_try int;
begin
    -- In one order for everybody; and nobody is waited for, as one order's wait would be all the others'.
    with locked as materialized (
        select o.id, o.status, clock_timestamp() + make_interval(secs => o.hold_seconds) as deadline
        from onehold.orders o
        where o.shop_id = p_shop and o.id = any (p_orders)
          -- Orders that want an asset are not even locked: a lock is written, and a commit that wrote is flushed.
          and not exists (select from onehold.order_lines l
                          where l.shop_id = p_shop and l.order_id = o.id and l.asset is not null)
        order by o.id
        for update skip locked
    )
    select array_agg(id) filter (where status = 'placed'), array_agg(deadline) filter (where status = 'placed'),
           array_agg(id) filter (where status <> 'placed')
    into v_placed, v_deadlines, v_decided
    from locked;
    return query select id, 'decided', false from unnest(v_decided) id;
    if v_placed is null then
        return;
    end if;
    select * into v_together from onehold.reserve_together(p_shop, v_placed, v_deadlines);
    return query select id, 'reserved', v_together.woke from unnest(v_together.reserved) id;
    for v_order in
        select o.id, o.deadline from unnest(v_placed, v_deadlines) as o (id, deadline)
        where o.id <> all (v_together.reserved)
        order by o.id
    loop
        order_id := v_order.id;
        outcome := 'apart';
        woke := false;
        for v_try in 1..2 loop
            begin
                v_reserved := onehold.reserve_stock(p_shop, v_order.id, v_order.deadline, false);
                if v_reserved ? 'short' then
                    raise exception 'short' using errcode = 'OHSHT';
                end if;
                perform onehold.mark_reserved(p_shop, v_order.id);
                outcome := 'reserved';
                woke := (v_reserved->>'woke')::boolean;
                exit;
            exception when sqlstate 'OHSHT' then
                -- One refill serves the whole batch. Where somebody else is at it, or there is nothing to put
                -- out, this order goes its own way.
                exit when v_try = 2 or not onehold.refill_for(p_shop, v_order.id);
            end;
        end loop;
        return next;
    end loop;
end
$$;

-- Stock holds have no asset: without them the index takes one entry less for each, and says the same.
drop index onehold.one_hold_per_asset;
create unique index one_hold_per_asset on onehold.reservations (shop_id, asset_id)
    where state = 'held' and asset_id is not null;

-- The newest order with a reference is one entry of this index. Without the id in it, the planner may look for that
-- order through the primary key, newest first, and pass all orders where none has the reference.
drop index onehold.orders_by_reference;
create index orders_by_reference on onehold.orders (shop_id, reference, id) where reference is not null;

-- The planner's statistics of a table that has grown since they were gathered; for a table that lately was nearly
-- empty it finds every index as good as any other, and a session keeps the plan that it made then: it would look for
-- an order by its shop alone. Autovacuum looks about once a minute only, and a sale may come in its first second.
-- One table a call, so that no lock outlives it; null when none has grown. More than twice the pages that were
-- counted last, and eight: as far as that, a wrong plan costs little.
create function onehold.analyze_what_grew() returns text
language plpgsql as $$
declare
    v_table text;
begin
    -- One session at a time is enough, and two would wait for each other.
    if not pg_try_advisory_xact_lock(hashtextextended('onehold.analyze_what_grew', 0)) then
        return null;
    end if;
    select format('%I.%I', n.nspname, c.relname) into v_table
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('onehold', 'apalis') and c.relkind = 'r'
      and pg_relation_size(c.oid) / current_setting('block_size')::bigint > 2 * greatest(c.relpages, 0) + 8
      -- What may not be analysed would come up again and again.
      and pg_has_role(c.relowner, 'usage')
    order by c.oid
    limit 1;
    if v_table is not null then
        execute format('analyze (skip_locked) %s', v_table);
    end if;
    return v_table;
end $$;

-- Jobs by the batch. As a plan of its own a statement in a SQL function is made anew at each call, which cost more
-- than the row; in PL/pgSQL it is kept. The id has the form of a ULID (26 of Crockford's digits) that apalis reads,
-- and sorts by time like one: 48 bits of Unix milliseconds and 56 random bits, in hexadecimal digits, as those are
-- among Crockford's. Gives how many were put in; see enqueue_job.
create function onehold.enqueue_jobs(
    p_queue text, p_keys text[], p_payloads jsonb[], p_max_attempts int, p_delay interval default '0',
    p_again boolean default true
) returns bigint
language plpgsql as $$
declare
    v_put bigint;
begin
    insert into apalis.jobs as j
        (id, job_type, job, status, attempts, max_attempts, run_at, priority, idempotency_key)
    select upper(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
                 || substr(encode(uuid_send(gen_random_uuid()), 'hex'), 19)),
           p_queue, convert_to(n.payload::text, 'UTF8'), 'Pending', 0, p_max_attempts, clock_timestamp() + p_delay, 0,
           n.key
    from unnest(p_keys, p_payloads) as n (key, payload)
    -- Two that put the same keys in wait for each other in one order only.
    order by n.key
    on conflict (job_type, idempotency_key) do update
        set status = 'Pending', attempts = 0, job = excluded.job, max_attempts = excluded.max_attempts,
            run_at = excluded.run_at, lock_by = null, lock_at = null, done_at = null, last_result = null
        where p_again and j.status in ('Done', 'Killed');
    get diagnostics v_put = row_count;
    return v_put;
end $$;

create or replace function onehold.enqueue_job(
    p_queue text, p_key text, p_payload jsonb, p_max_attempts int, p_delay interval default '0',
    p_again boolean default true
) returns boolean
language plpgsql as $$
begin
    return onehold.enqueue_jobs(p_queue, array[p_key], array[p_payload], p_max_attempts, p_delay, p_again) > 0;
end $$;

-- As in 0006, for many orders: first whether there is any such event, which is rare.
create function onehold.enqueue_payments(p_shop int, p_orders uuid[], p_stage text) returns void
language plpgsql as $$
begin
    if not exists (
        select from onehold.payment_events e
        where e.shop_id = p_shop and e.state = 'pending' and e.order_ref = any (
            p_orders::text[] || (select array_agg(upper(id::text)) from unnest(p_orders) id)
            || (select array_agg(o.reference) from onehold.orders o
                where o.shop_id = p_shop and o.id = any (p_orders) and o.reference is not null)))
    then
        return;
    end if;
    perform onehold.enqueue_jobs('convert',
        array_agg(p_shop || ':' || e.provider || ':' || e.event_id || ':' || p_stage),
        array_agg(jsonb_build_object('v', 1, 'shop', p_shop, 'provider', e.provider, 'event', e.event_id)), 20)
    from (
        -- Once, though it may name one of the orders and another's reference.
        select distinct e.provider, e.event_id
        from onehold.orders o
        join onehold.payment_events e
          on e.shop_id = o.shop_id and e.state = 'pending'
             and e.order_ref in (o.id::text, upper(o.id::text), o.reference)
        where o.shop_id = p_shop and o.id = any (p_orders)
    ) e
    having count(*) > 0;
end $$;

create or replace function onehold.enqueue_payments(p_shop int, p_order uuid, p_stage text) returns void
language plpgsql as $$
begin
    perform onehold.enqueue_payments(p_shop, array[p_order], p_stage);
end $$;

-- Many orders placed in one commit; each as store_order has it. `n` is the place in what was given.
create function onehold.store_orders(
    p_shop int, p_keys text[], p_bodies jsonb[], p_lines jsonb[], p_actors text[]
) returns table (n int, order_id uuid, outcome text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_n int[];
    v_ids uuid[];
begin
    with asked as materialized (
        select a.n::int, onehold.uuid_v7() as id, a.key, a.body, a.actor
        from unnest(p_keys, p_bodies, p_actors) with ordinality as a (key, body, actor, n)
    ), stored as (
        insert into onehold.orders
            (shop_id, id, idempotency_key, reference, placed_by, hold_seconds, buyer, wait_seconds, amount, currency,
             body)
        select p_shop, a.id, a.key, a.body->>'reference', a.actor,
               coalesce((a.body->>'hold_seconds')::numeric::int, s.hold_seconds),
               a.body->>'buyer', coalesce((a.body->>'wait_seconds')::numeric::int, 0),
               (a.body#>>'{payment,amount}')::numeric::bigint, a.body#>>'{payment,currency}', a.body
        from asked a, onehold.shops s
        where s.id = p_shop
        -- A key that a neighbour is storing is waited for: in one order, so that two never wait for each other.
        order by a.key
        on conflict on constraint one_order_per_key do nothing
        returning id
    )
    select array_agg(a.n), array_agg(a.id) into v_n, v_ids
    from asked a join stored s on s.id = a.id;

    if v_n is not null then
        insert into onehold.order_lines (shop_id, order_id, line, asset, sku, locations, split, quantity)
        select p_shop, o.id, l.n, l.spec->'asset', l.spec->>'sku',
               case when jsonb_typeof(l.spec->'locations') = 'array'
                    then array(select jsonb_array_elements_text(l.spec->'locations')) end,
               coalesce((l.spec->>'split')::boolean, false), coalesce((l.spec->>'quantity')::numeric::int, 1)
        from unnest(v_n, v_ids) as o (n, id), jsonb_array_elements(p_lines[o.n]) with ordinality as l (spec, n);

        insert into onehold.order_events (shop_id, order_id, kind, actor)
        select p_shop, o.id, 'placed', p_actors[o.n] from unnest(v_n, v_ids) as o (n, id);

        perform onehold.enqueue_jobs('reserve', array_agg(o.id::text),
            array_agg(jsonb_build_object('v', 1, 'shop', p_shop, 'order', o.id)), 20)
        from unnest(v_ids) as o (id);

        -- Money that came before its order.
        perform onehold.enqueue_payments(p_shop, v_ids, 'placed');
        return query select o.n, o.id, 'placed' from unnest(v_n, v_ids) as o (n, id);
    end if;

    if cardinality(v_n) is distinct from cardinality(p_keys) then
        -- A new statement, so a new snapshot: it sees the neighbour that has just committed.
        return query
            select a.n::int, o.id, case when o.body = a.body then 'replayed' else 'key_reused' end
            from unnest(p_keys, p_bodies) with ordinality as a (key, body, n)
            join onehold.orders o on o.shop_id = p_shop and o.idempotency_key = a.key
            where a.n <> all (coalesce(v_n, '{}'));
    end if;
end $$;

create or replace function onehold.store_order(
    p_shop int, p_key text, p_body jsonb, p_lines jsonb, p_actor text,
    out order_id uuid, out outcome text
)
language plpgsql as $$
begin
    select s.order_id, s.outcome into order_id, outcome
    from onehold.store_orders(p_shop, array[p_key], array[p_body], array[p_lines], array[p_actor]) s;
end $$;

-- Turns the holds of many orders into sales in one commit: those that a payment event pays in full, as their first
-- money, with time left. Gives the place of each that was converted in what was given; every other event needs the
-- careful way, which decides by the same rules one at a time.
create function onehold.convert_together(p_shop int, p_providers text[], p_events text[]) returns setof int
language plpgsql as $$
declare
    v_n int[];
    v_orders uuid[];
    v_holds uuid[];
    v_written bigint;
    v_more bigint;
begin
    -- The order first, as everybody locks; nobody is waited for, as one order's wait would be all the others'.
    with asked as materialized (
        select distinct on (found.id) found.id, a.n, e.amount, e.currency
        from unnest(p_providers, p_events) with ordinality as a (provider, event, n)
        join onehold.payment_events e
          on e.shop_id = p_shop and e.provider = a.provider and e.event_id = a.event
             and e.state = 'pending' and e.effect = 'succeeded'
        cross join lateral (select coalesce(
            (select o.id from onehold.orders o where o.shop_id = p_shop and o.id = onehold.uuid_or_null(e.order_ref)),
            (select o.id from onehold.orders o where o.shop_id = p_shop and o.reference = e.order_ref
             order by o.id desc limit 1)) as id) found
        where found.id is not null
        order by found.id, a.n
    ), locked as materialized (
        select o.id, a.n
        from asked a
        join onehold.orders o on o.shop_id = p_shop and o.id = a.id
        where o.status = 'reserved' and o.payment_state = 'none'
          and (o.amount is null or (o.amount = a.amount and o.currency = a.currency))
        order by o.id
        for update of o skip locked
    )
    select array_agg(n), array_agg(id) into v_n, v_orders from locked;
    if v_n is null then
        return;
    end if;
    -- Then their assets; what is not ready to be handed over is for the careful way.
    perform from onehold.assets a
    where a.shop_id = p_shop
      and a.id in (select r.asset_id from onehold.reservations r
                   where r.shop_id = p_shop and r.order_id = any (v_orders) and r.state = 'held'
                     and r.asset_id is not null)
    order by a.id
    for update;
    -- Read again now that nobody else can be at these orders: money that was told of before is another story, and so
    -- is a hold that lapses now. The guard of reservations judges that once more.
    select array_agg(o.n), array_agg(o.id) into v_n, v_orders
    from unnest(v_n, v_orders) as o (n, id)
    where exists (select from onehold.payment_events e
                  where e.shop_id = p_shop and e.provider = p_providers[o.n] and e.event_id = p_events[o.n]
                    and e.state = 'pending')
      and not exists (select from onehold.payment_events e
                      where e.shop_id = p_shop and e.order_id = o.id and e.state = 'applied')
      and exists (select from onehold.reservations r
                  where r.shop_id = p_shop and r.order_id = o.id and r.state = 'held')
      and not exists (select from onehold.reservations r
                      left join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
                      where r.shop_id = p_shop and r.order_id = o.id and r.state = 'held'
                        and (r.expires_at <= clock_timestamp() + interval '100 ms' or a.status <> 'ready'));
    if v_n is null then
        return;
    end if;

    with sold as (
        update onehold.reservations set state = 'converted'
        where shop_id = p_shop and order_id = any (v_orders) and state = 'held'
        returning id
    )
    select array_agg(id) into v_holds from sold;
    -- After it, as a binding's guard must see its hold converted.
    insert into onehold.bindings (shop_id, reservation_id, asset_id)
    select p_shop, id, asset_id from onehold.reservations
    where shop_id = p_shop and id = any (v_holds) and asset_id is not null
    order by asset_id;
    get diagnostics v_written = row_count;
    insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference, actor)
    select p_shop, r.sku, r.location, -r.quantity, 'sale', 'onehold:sale:' || r.id, 'payment:' || p_providers[o.n]
    from onehold.reservations r
    join unnest(v_n, v_orders) as o (n, id) on o.id = r.order_id
    where r.shop_id = p_shop and r.id = any (v_holds) and r.sku is not null
    order by r.sku, r.location;
    get diagnostics v_more = row_count;
    if v_written + v_more <> cardinality(v_holds) then
        raise exception '% of % holds were bound or sold', v_written + v_more, cardinality(v_holds);
    end if;

    update onehold.payment_events e
    set state = 'applied', order_id = o.id, outcome = 'converted', applied_at = clock_timestamp()
    from unnest(v_n, v_orders) as o (n, id)
    where e.shop_id = p_shop and e.provider = p_providers[o.n] and e.event_id = p_events[o.n] and e.state = 'pending';
    get diagnostics v_written = row_count;
    update onehold.orders set status = 'converted', payment_state = 'paid'
    where shop_id = p_shop and id = any (v_orders) and status = 'reserved';
    get diagnostics v_more = row_count;
    if v_written <> cardinality(v_n) or v_more <> cardinality(v_n) then
        raise exception '% of % payments and % of their orders were converted', v_written, cardinality(v_n), v_more;
    end if;
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    select p_shop, o.id, 'converted', 'payment:' || e.provider,
           jsonb_build_object('type', e.type, 'payment_id', e.payment_id, 'amount', e.amount, 'currency', e.currency)
    from unnest(v_n, v_orders) as o (n, id)
    join onehold.payment_events e
      on e.shop_id = p_shop and e.provider = p_providers[o.n] and e.event_id = p_events[o.n];
    return query select unnest(v_n);
end $$;
