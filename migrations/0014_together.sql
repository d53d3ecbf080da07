-- Why: orders that ask for stock at the same moment were reserved in one commit, but one by one. Most of them want
-- the same few pools, so they are reserved as a set: one look at each pool, and one statement for all their rows.
-- Previous release: survives; it calls the same function and gets the same answers.

-- Reserves as many of the given orders as their first choice of location suffices for, each whole. The caller has
-- locked them, and they are placed and want stock only. In one order of pools for everybody, without waiting for
-- anyone. Gives the orders that were reserved; the others are as they were.
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
    v_references text[];
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
            perform onehold.refill_if_free(p_shop, v_pool.sku, v_pool.location);
            v_units := onehold.take_units(p_shop, v_pool.sku, v_pool.location, v_wanted);
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
        returning o.id, o.reference
    ), told as (
        insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
        select p_shop, h.order_id, 'reserved', 'worker', jsonb_build_object(
            'deadline', min(h.expires_at),
            'reservations', jsonb_agg(jsonb_build_object('line', h.line, 'sku', h.sku, 'location', h.location,
                                                         'quantity', h.quantity, 'reason', h.reason)
                                      order by h.line))
        from held h group by h.order_id
    )
    select coalesce(array_agg(m.id), '{}'), array_agg(m.reference),
           (select coalesce(sum(h.quantity), 0) from held h)
    into reserved, v_references, v_used
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
    -- Money that came before its hold is rare, and asking for it once for all of them is cheap.
    if exists (select from onehold.payment_events e
               where e.shop_id = p_shop and e.state = 'pending' and e.order_ref = any (
                   v_references || reserved::text[] || (select array_agg(upper(id::text)) from unnest(reserved) id))) then
        perform onehold.enqueue_payments(p_shop, id, 'reserved') from unnest(reserved) id;
    end if;
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
