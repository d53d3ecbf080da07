-- Why: orders that ask for an asset were reserved one by one, twenty round trips and a commit each; and buyers of like
-- machines met at the head of one list, where the 25 that each of them looked at were locked by the others. Those that
-- ask for one asset are reserved as a set now: one list for all who want the same, and each gets the next of it that
-- nobody has locked. Those who get nothing because nothing is left are told so together, as it is counted once.
-- Previous release: survives. It reads the columns that it knows by name, and takes "refused" for an order that
-- somebody else has decided; it shows what was reserved in company without its reason until it is replaced.

-- The refusal of a line that lacks p_missing assets, counted over all the assets of its category, as it stands in the
-- order for ever. p_contended: the search ended with candidates left that others had.
create function onehold.asset_refusal(
    p_shop int, p_order uuid, p_line int, p_wanted jsonb, p_missing bigint, p_contended boolean
) returns jsonb
language plpgsql as $$
declare
    v record;
    v_locations text[] := case when jsonb_typeof(p_wanted->'locations') = 'array'
                               then array(select jsonb_array_elements_text(p_wanted->'locations')) end;
    v_attributes jsonb := coalesce(p_wanted->'attributes', '{}');
    v_path jsonpath := onehold.attributes_path(v_attributes);
    v_beyond jsonb := onehold.attributes_beyond_path(v_attributes);
    v_kind text;
    v_retry bigint;
begin
    with facts as (
        select v_locations is not null and a.location <> all (v_locations) as wrong_location,
               p_wanted->>'vendor' is not null and a.vendor is distinct from p_wanted->>'vendor' as wrong_vendor,
               v_attributes <> '{}' and not (a.attributes @? v_path
                   and (v_beyond = '{}' or onehold.attributes_match(a.attributes, v_beyond))) as attribute_mismatch,
               a.status <> 'ready' or coalesce(a.available_from > clock_timestamp(), false) as not_ready,
               -- What this very order holds by now is no reason, and not free either.
               coalesce(r.state = 'held' and r.order_id = p_order, false) as own,
               coalesce(r.state = 'held' and r.order_id <> p_order and r.expires_at > clock_timestamp(), false) as held,
               coalesce(r.state = 'converted', false) as bound,
               r.expires_at
        from onehold.assets a
        left join onehold.reservations r on r.shop_id = a.shop_id and r.id = a.owner_id
        where a.shop_id = p_shop and a.category = p_wanted->>'category' and a.deleted_at is null
    ), judged as (
        select *, not (wrong_location or wrong_vendor or attribute_mismatch or not_ready or bound or own) as fits
        from facts
    )
    select count(*) filter (where wrong_location) as wrong_location,
           count(*) filter (where wrong_vendor) as wrong_vendor,
           count(*) filter (where attribute_mismatch) as attribute_mismatch,
           count(*) filter (where not_ready) as not_ready,
           count(*) filter (where held) as held,
           count(*) filter (where bound) as bound,
           count(*) filter (where fits and not held) as free,
           count(*) filter (where fits and held) as fitting_held,
           ceil(extract(epoch from min(expires_at) filter (where fits and held) - clock_timestamp()))::bigint
               as first_lapse_seconds
    into v from judged;
    -- Something that fits came free between the list and this count, or the rivals hold it by now.
    if p_contended or v.free > 0 then
        v_kind := 'contended';
        v_retry := 1;
    elsif v.fitting_held >= p_missing then
        v_kind := 'held';
        v_retry := greatest(coalesce(v.first_lapse_seconds, 1), 1);
    else
        v_kind := 'unavailable';
    end if;
    return jsonb_build_object(
        'kind', v_kind, 'line', p_line, 'retry_after_seconds', v_retry,
        'reasons', (
            select coalesce(jsonb_agg(jsonb_build_object('reason', c.reason, 'count', c.n) order by c.place), '[]')
            from (values (1, 'wrong_location', v.wrong_location), (2, 'wrong_vendor', v.wrong_vendor),
                         (3, 'attribute_mismatch', v.attribute_mismatch), (4, 'not_ready', v.not_ready),
                         (5, 'held', v.held), (6, 'bound', v.bound)) c (place, reason, n)
            where c.n > 0));
end
$$;

-- The first p_limit sellable assets that meet p_wanted, side by side, in the order in which they are sold: by preferred
-- location, then rank, then key. Takes no lock.
create function onehold.list_assets(
    p_shop int, p_wanted jsonb, p_limit int, out ids uuid[], out locations text[], out facts jsonb[]
)
language plpgsql as $$
declare
    v_attributes jsonb := coalesce(p_wanted->'attributes', '{}');
    v_path jsonpath := onehold.attributes_path(v_attributes);
    v_beyond jsonb := onehold.attributes_beyond_path(v_attributes);
begin
    if jsonb_typeof(p_wanted->'locations') = 'array' then
        -- One short index scan per location; a place named twice counts where it is named first.
        select array_agg(l.id order by l.n, l.rank, l.key), array_agg(l.location order by l.n, l.rank, l.key),
               array_agg(jsonb_build_object('asset', l.key, 'location', l.location, 'vendor', l.vendor,
                                            'rank', l.rank, 'attributes', l.attributes) order by l.n, l.rank, l.key)
        into ids, locations, facts
        from (
            select place.n, a.* from (
                select name, min(n) as n
                from jsonb_array_elements_text(p_wanted->'locations') with ordinality l (name, n) group by name) place
            cross join lateral (
                select a.id, a.key, a.location, a.vendor, a.rank, a.attributes
                from onehold.assets a
                where a.shop_id = p_shop and a.category = p_wanted->>'category' and a.location = place.name
                  and a.status = 'ready' and a.owner_id is null
                  and (a.available_from is null or a.available_from <= clock_timestamp())
                  and (p_wanted->>'vendor' is null or a.vendor = p_wanted->>'vendor')
                  and (v_attributes = '{}' or a.attributes @? v_path
                       and (v_beyond = '{}' or onehold.attributes_match(a.attributes, v_beyond)))
                order by a.rank, a.key
                limit p_limit) a
            order by place.n, a.rank, a.key
            limit p_limit) l;
    else
        select array_agg(l.id order by l.rank, l.key), array_agg(l.location order by l.rank, l.key),
               array_agg(jsonb_build_object('asset', l.key, 'location', l.location, 'vendor', l.vendor,
                                            'rank', l.rank, 'attributes', l.attributes) order by l.rank, l.key)
        into ids, locations, facts
        from (
            select a.id, a.key, a.location, a.vendor, a.rank, a.attributes
            from onehold.assets a
            where a.shop_id = p_shop and a.category = p_wanted->>'category'
              and a.status = 'ready' and a.owner_id is null
              and (a.available_from is null or a.available_from <= clock_timestamp())
              and (p_wanted->>'vendor' is null or a.vendor = p_wanted->>'vendor')
              and (v_attributes = '{}' or a.attributes @? v_path
                   and (v_beyond = '{}' or onehold.attributes_match(a.attributes, v_beyond)))
            order by a.rank, a.key
            limit p_limit) l;
    end if;
    ids := coalesce(ids, '{}');
    locations := coalesce(locations, '{}');
    facts := coalesce(facts, '{}');
end
$$;

-- Reserves one asset for each of the given orders, which all want the same, are placed, have this one line, and are
-- locked by the caller. Each gets the next of one list that nobody has locked: as many are locked as are taken, never
-- the set. Gives the orders that were reserved, in their order; and whether nothing is left: all that was listed is
-- theirs now, and the list was not cut short.
create function onehold.reserve_like_assets(
    p_shop int, p_wanted jsonb, p_orders uuid[], p_deadlines timestamptz[], out reserved uuid[], out nothing_left boolean
)
language plpgsql as $$
declare
    -- What an order by itself looks at, and room for what so many others at once may have locked.
    v_limit int := 25 + 3 * cardinality(p_orders);
    v_list record;
    v_places int[];
    v_constraint text;
    v_asked jsonb := case when p_wanted->'attributes' = '{}' then p_wanted - 'attributes' else p_wanted end;
begin
    reserved := '{}';
    select * into v_list from onehold.list_assets(p_shop, p_wanted, v_limit);
    -- Looked at again under the lock: one that was taken, moved or changed since the list drops out.
    select array_agg(locked.n order by locked.n) into v_places
    from (
        select listed.n::int
        from unnest(v_list.ids, v_list.locations) with ordinality listed (id, location, n)
        join onehold.assets a on a.shop_id = p_shop and a.id = listed.id
        where a.status = 'ready' and a.owner_id is null
          and (a.available_from is null or a.available_from <= clock_timestamp())
          and a.location = listed.location and a.category = p_wanted->>'category'
          and (p_wanted->>'vendor' is null or a.vendor = p_wanted->>'vendor')
          and (coalesce(p_wanted->'attributes', '{}') = '{}'
               or onehold.attributes_match(a.attributes, p_wanted->'attributes'))
        order by listed.n
        limit cardinality(p_orders)
        for update of a skip locked) locked;
    nothing_left := cardinality(v_list.ids) < v_limit
        and cardinality(v_list.ids) = coalesce(cardinality(v_places), 0);
    if v_places is null then
        return;
    end if;
    begin
        with chosen as (
            -- The i-th order has the i-th that was free; those before it in the list are others', or its neighbours'.
            select o.id as order_id, o.deadline, p.n, v_list.ids[p.n] as asset_id, v_list.locations[p.n] as location,
                   v_list.facts[p.n] as facts, v_list.facts[p.n + 1] as behind, p.n - o.i as skipped,
                   cardinality(v_list.ids) - (o.i - 1) as listed
            from unnest(p_orders, p_deadlines) with ordinality o (id, deadline, i)
            join unnest(v_places) with ordinality p (n, i) on p.i = o.i
        ), held as (
            insert into onehold.reservations
                (shop_id, order_id, line, slot, state, asset_id, location, quantity, expires_at, reason)
            select p_shop, c.order_id, 1, 1, 'held', c.asset_id, c.location, 1, c.deadline, jsonb_build_object(
                'asked', v_asked,
                'candidates', least(c.listed, greatest(25, c.skipped + 1)),
                'skipped', c.skipped,
                'attempts', 1,
                'taken', c.facts,
                'runner_up', case when c.behind is not null then jsonb_build_object(
                    'facts', c.behind,
                    'lost_because', case
                        when jsonb_typeof(p_wanted->'locations') = 'array' and c.behind->'location' <> c.facts->'location'
                            then 'less_preferred_location'
                        when c.behind->'rank' <> c.facts->'rank' then 'higher_rank'
                        else 'later_key' end) end)
            from chosen c
            returning order_id, location, expires_at
        ), marked as (
            update onehold.orders o set status = 'reserved'
            from chosen c
            where o.shop_id = p_shop and o.id = c.order_id and o.status = 'placed'
            returning o.id
        ), told as (
            insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
            select p_shop, h.order_id, 'reserved', 'worker', jsonb_build_object(
                'deadline', h.expires_at,
                'reservations', jsonb_build_array(jsonb_build_object(
                    'line', 1, 'asset', c.facts->'asset', 'location', h.location, 'quantity', 1)))
            from held h join chosen c on c.order_id = h.order_id
        )
        select coalesce(array_agg(m.id order by m.id), '{}') into reserved from marked m;
    exception when unique_violation then
        -- An asset that looked free has an owner, or an order its reservation: each is looked at by itself, under a
        -- savepoint for each candidate.
        get stacked diagnostics v_constraint = constraint_name;
        if v_constraint not in ('one_hold_per_asset', 'one_owner_per_asset', 'one_reservation_per_slot') then
            raise;
        end if;
        reserved := '{}';
        nothing_left := false;
    end;
end
$$;

-- What history tells of reservations, with the reason of each: a reservation that was made in company has it in its own
-- row alone, where it is frozen too, as to write it twice cost a fifth of the whole decision. Those were one for a line.
create function onehold.with_reasons(p_shop int, p_order uuid, p_kind text, p_detail jsonb) returns jsonb
language plpgsql stable as $$
begin
    if p_kind <> 'reserved' or jsonb_typeof(p_detail->'reservations') is distinct from 'array'
       or p_detail#>'{reservations,0,reason}' is not null then
        return p_detail;
    end if;
    return p_detail || jsonb_build_object('reservations', (
        select jsonb_agg(e.told || jsonb_build_object('reason', r.reason) order by e.n)
        from jsonb_array_elements(p_detail->'reservations') with ordinality e (told, n)
        left join onehold.reservations r on r.shop_id = p_shop and r.order_id = p_order
            and r.line = (e.told->>'line')::smallint and r.slot = 1 and r.acquisition = 1));
end
$$;

-- Reserves as many of the given orders as their first choice of location suffices for, each whole. The caller has
-- locked them, and they are placed and want stock only. Pools are drawn on in one order for everybody, and only
-- their refills are waited for. Gives the orders that were reserved; the others are as they were. As in 0010, but that
-- history does not repeat the reasons.
create or replace function onehold.reserve_together(
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
        returning order_id, line, sku, location, quantity, expires_at
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
                                                         'quantity', h.quantity)
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

-- As many of the given orders as can be decided together: each asks for one asset and nothing else. Gives those that
-- are reserved, and those that are refused and what they were told.
create function onehold.reserve_assets_together(p_shop int, p_orders uuid[], p_deadlines timestamptz[])
returns table (order_id uuid, refusal jsonb)
language plpgsql as $$
#variable_conflict use_column
declare
    v_group record;
    v_done record;
    v_left uuid[];
    v_refusal jsonb;
    v_reserved uuid[] := '{}';
begin
    for v_group in
        select l.asset as wanted, array_agg(o.id order by o.id) as orders, array_agg(o.deadline order by o.id) as deadlines
        from unnest(p_orders, p_deadlines) as o (id, deadline)
        join onehold.order_lines l on l.shop_id = p_shop and l.order_id = o.id
        group by l.asset
        -- The pickier first: one that takes anything would take from it what only it can use.
        order by (l.asset ? 'locations')::int + (l.asset ? 'vendor')::int
                 + (select count(*) from jsonb_object_keys(coalesce(l.asset->'attributes', '{}'))) desc, l.asset
    loop
        select * into v_done from onehold.reserve_like_assets(p_shop, v_group.wanted, v_group.orders, v_group.deadlines);
        v_reserved := v_reserved || v_done.reserved;
        return query select id, null::jsonb from unnest(v_done.reserved) id;
        -- Who may wait for what comes free, waits.
        select array_agg(o.id order by o.id) into v_left from onehold.orders o
        where v_done.nothing_left and o.shop_id = p_shop and o.id = any (v_group.orders)
          and o.id <> all (v_done.reserved) and o.wait_seconds = 0;
        continue when v_left is null;
        v_refusal := onehold.asset_refusal(p_shop, v_left[1], 1, v_group.wanted, 1, false);
        -- Something is there after all, or will be when lapsed holds are cleared.
        continue when v_refusal->>'kind' = 'contended';
        update onehold.orders o set status = 'refused', refusal = v_refusal
        where o.shop_id = p_shop and o.id = any (v_left) and o.status = 'placed';
        insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
        select p_shop, id, 'refused', 'worker', v_refusal from unnest(v_left) id;
        -- Money that came early is owed back.
        perform onehold.enqueue_payments(p_shop, v_left, 'refused');
        return query select id, v_refusal from unnest(v_left) id;
    end loop;
    -- Money that came before its hold.
    perform onehold.enqueue_payments(p_shop, v_reserved, 'reserved');
end
$$;

-- As in 0011, and beside that: orders that ask for one asset and nothing else are decided as a set too. Their refusal
-- is given with them.
drop function onehold.reserve_batch(int, uuid[]);
create function onehold.reserve_batch(p_shop int, p_orders uuid[])
returns table (order_id uuid, outcome text, woke boolean, refusal jsonb)
language plpgsql as $$
#variable_conflict use_column
declare
    v_placed uuid[];
    v_deadlines timestamptz[];
    v_decided uuid[];
    v_assets uuid[];
    v_asset_deadlines timestamptz[];
    v_together record;
    v_order record;
    v_reserved jsonb;
    v_try int;
    v_limited boolean := (select max_holds_per_buyer is not null from onehold.shops where id = p_shop);
begin
    -- In one order for everybody; and nobody is waited for, as one order's wait would be all the others'.
    with locked as materialized (
        select o.id, o.status, clock_timestamp() + make_interval(secs => o.hold_seconds) as deadline,
               o.waiting_until is null and (o.buyer is null or not v_limited) as plain,
               exists (select from onehold.order_lines l
                       where l.shop_id = p_shop and l.order_id = o.id and l.asset is not null) as wants_asset
        from onehold.orders o
        where o.shop_id = p_shop and o.id = any (p_orders)
          -- What is for the careful way is not even locked: a lock is written, and a commit that wrote is flushed.
          and not exists (select from onehold.order_lines l
                          join onehold.order_lines a on a.shop_id = p_shop and a.order_id = o.id and a.asset is not null
                          where l.shop_id = p_shop and l.order_id = o.id and (l.line > 1 or l.quantity > 1))
        order by o.id
        for update skip locked
    )
    select array_agg(id) filter (where status = 'placed' and plain and not wants_asset),
           array_agg(deadline) filter (where status = 'placed' and plain and not wants_asset),
           array_agg(id) filter (where status <> 'placed'),
           array_agg(id) filter (where status = 'placed' and plain and wants_asset),
           array_agg(deadline) filter (where status = 'placed' and plain and wants_asset)
    into v_placed, v_deadlines, v_decided, v_assets, v_asset_deadlines
    from locked;
    return query select id, 'decided', false, null::jsonb from unnest(v_decided) id;
    if v_placed is null and v_assets is null then
        return;
    end if;
    -- Whoever begins to wait now waits for this batch first, and looks again then.
    if onehold.enter_waiting_list(p_shop) then
        select array_agg(o.id order by o.id) filter (where not o.wants_asset),
               array_agg(o.deadline order by o.id) filter (where not o.wants_asset),
               array_agg(o.id order by o.id) filter (where o.wants_asset),
               array_agg(o.deadline order by o.id) filter (where o.wants_asset)
        into v_placed, v_deadlines, v_assets, v_asset_deadlines
        from (select id, deadline, false as wants_asset from unnest(v_placed, v_deadlines) as s (id, deadline)
              union all
              select id, deadline, true from unnest(v_assets, v_asset_deadlines) as a (id, deadline)) o
        where not exists (
            select from onehold.order_lines l
            join onehold.order_lines w on w.shop_id = p_shop and w.waits
                 and coalesce(w.sku, w.asset->>'category') = coalesce(l.sku, l.asset->>'category')
            where l.shop_id = p_shop and l.order_id = o.id);
    end if;
    -- Assets before pools, as everybody locks.
    if v_assets is not null then
        return query
            select d.order_id, case when d.refusal is null then 'reserved' else 'refused' end, false, d.refusal
            from onehold.reserve_assets_together(p_shop, v_assets, v_asset_deadlines) d;
    end if;
    if v_placed is null then
        return;
    end if;
    select * into v_together from onehold.reserve_together(p_shop, v_placed, v_deadlines);
    return query select id, 'reserved', v_together.woke, null::jsonb from unnest(v_together.reserved) id;
    for v_order in
        select o.id, o.deadline from unnest(v_placed, v_deadlines) as o (id, deadline)
        where o.id <> all (v_together.reserved)
        order by o.id
    loop
        order_id := v_order.id;
        outcome := 'apart';
        woke := false;
        refusal := null;
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
