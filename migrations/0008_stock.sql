-- Why: the second kind of thing: n interchangeable units of a SKU at a location. The ledger says what is there;
-- pools of unit rows are what transactions can lock apart.
-- Previous release: survives; it knows no stock lines and reads none of this.

alter table onehold.shops
    -- The most unit rows of one SKU at one location, whatever the stock.
    add column pool_bound int not null default 1000,
    add constraint pool_bound_is_sane check (pool_bound between 1 and 10000);

-- The ledger: append-only; its sum is on-hand, and on-hand is the truth.
create table onehold.stock_movements (
    shop_id int not null references onehold.shops (id),
    id uuid not null default onehold.uuid_v7(),
    sku text not null,
    location text not null,
    delta int not null,
    kind text not null,
    -- Makes it count once. Sales and releases are named by their reservation: onehold:sale:ID.
    reference text not null,
    actor text not null default 'sql',
    at timestamptz not null default clock_timestamp(),
    primary key (shop_id, id),
    constraint one_movement_per_reference unique (shop_id, reference),
    constraint movement_kind_is_known check (kind in ('receipt', 'adjustment', 'return', 'sale', 'release')),
    constraint a_movement_moves check (delta <> 0),
    constraint a_kind_has_its_direction check (case kind
        when 'sale' then delta < 0
        when 'adjustment' then true
        else delta > 0 end)
);

-- What of the ledger is not rolled up yet: a sale appends here, and never waits for a row that another
-- sale holds.
create table onehold.stock_deltas (
    shop_id int not null,
    sku text not null,
    location text not null,
    id bigint generated always as identity,
    delta int not null,
    primary key (shop_id, sku, location, id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- One row per SKU and location that ever had stock: on-hand as rolled up so far, and where its units stand.
create table onehold.stock_levels (
    shop_id int not null,
    sku text not null,
    location text not null,
    rolled bigint not null default 0,
    -- Units are numbered upwards; those that are left lie in [low_unit, next_unit).
    low_unit bigint not null default 1,
    next_unit bigint not null default 1,
    primary key (shop_id, sku, location)
) with (fillfactor = 50);

-- The pool: rows that transactions can lock apart. Taken from the table by a reservation, so a row that is
-- here is sellable. Dead rows gather where units were sold, at the low end, and searches begin above it.
create table onehold.pool_units (
    shop_id int not null,
    sku text not null,
    location text not null,
    unit bigint not null,
    primary key (shop_id, sku, location, unit)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Units that are held without being there: a forced movement took on-hand below what is held.
create table onehold.stock_shortfalls (
    shop_id int not null,
    id uuid not null default onehold.uuid_v7(),
    sku text not null,
    location text not null,
    units bigint not null,
    reference text not null,
    at timestamptz not null default clock_timestamp(),
    cleared_at timestamptz,
    primary key (shop_id, id),
    constraint a_shortfall_lacks_something check (units > 0)
);
create unique index one_open_shortfall_per_pool on onehold.stock_shortfalls (shop_id, sku, location)
    where cleared_at is null;

-- How far the housekeeping has come on its way round the pools of a shop.
create table onehold.pool_walks (
    shop_id int primary key,
    sku text not null default '',
    location text not null default ''
);

create index holds_by_pool on onehold.reservations (shop_id, sku, location) include (quantity, expires_at)
    where state = 'held' and sku is not null;

create function onehold.guard_movement() returns trigger
language plpgsql as $$
begin
    raise exception 'the ledger is append-only: write a movement that corrects it'
        using errcode = 'check_violation', constraint = 'the_ledger_is_append_only',
              schema = 'onehold', table = 'stock_movements';
end
$$;
create trigger the_ledger_is_append_only before update or delete on onehold.stock_movements
    for each row execute function onehold.guard_movement();
create trigger the_ledger_is_not_emptied before truncate on onehold.stock_movements
    for each statement execute function onehold.guard_movement();

-- Whatever writes a movement, on-hand follows.
create function onehold.follow_movements() returns trigger
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
    return null;
end
$$;
create trigger movements_make_on_hand after insert on onehold.stock_movements
    referencing new table as fresh
    for each statement execute function onehold.follow_movements();

-- What one pool has at this instant, as one statement sees it: on-hand, held, pooled. Not in plain SQL, which would
-- be planned anew at each call.
create function onehold.pool_figures(
    p_shop int, p_sku text, p_location text, out on_hand bigint, out held bigint, out pooled bigint
)
language plpgsql stable as $$
begin
    select
        coalesce((select rolled from onehold.stock_levels
                  where shop_id = p_shop and sku = p_sku and location = p_location), 0)
        + coalesce((select sum(delta) from onehold.stock_deltas
                    where shop_id = p_shop and sku = p_sku and location = p_location), 0),
        coalesce((select sum(quantity) from onehold.reservations
                  where shop_id = p_shop and sku = p_sku and location = p_location and state = 'held'), 0),
        (select count(*) from onehold.pool_units
         where shop_id = p_shop and sku = p_sku and location = p_location)
    into on_hand, held, pooled;
end
$$;

-- The advisory lock of a pool: one refiller, adjuster or exact reservation at a time. Two pools that share a
-- number wait for each other now and then, and nothing else.
create function onehold.pool_lock_key(p_shop int, p_sku text, p_location text) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(p_shop || '/' || p_sku || '/' || p_location, 7) $$;

-- Takes up to n unit rows in that nobody has locked, so that they are sellable no more. Gives how many.
create function onehold.take_in(p_shop int, p_sku text, p_location text, p_n bigint) returns bigint
language plpgsql as $$
declare
    v_units bigint[];
begin
    select array_agg(unit order by unit) into v_units from (
        select unit from onehold.pool_units
        where shop_id = p_shop and sku = p_sku and location = p_location
        order by unit limit p_n
        for update skip locked) picked;
    delete from onehold.pool_units
    where shop_id = p_shop and sku = p_sku and location = p_location
      and unit between v_units[1] and v_units[cardinality(v_units)] and unit = any (v_units);
    return coalesce(cardinality(v_units), 0);
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
create function onehold.refill_locked(p_shop int, p_sku text, p_location text) returns bigint
language plpgsql as $$
declare
    v record;
    v_bound int := (select pool_bound from onehold.shops where id = p_shop);
    v_put bigint;
    v_taken bigint := 0;
    v_far bigint[];
begin
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

-- Refills a pool if nobody else is at it; whoever is, does it.
create function onehold.refill_if_free(p_shop int, p_sku text, p_location text) returns bigint
language plpgsql as $$
begin
    if pg_try_advisory_xact_lock(onehold.pool_lock_key(p_shop, p_sku, p_location)) then
        return onehold.refill_locked(p_shop, p_sku, p_location);
    end if;
    return 0;
end
$$;

-- Refills a pool that has fallen under its low-water mark, which is half its bound, or takes in what is out too
-- much; leaves any other alone. What the refill job does. Gives how many units were put out.
create function onehold.refill_if_needed(p_shop int, p_sku text, p_location text) returns bigint
language plpgsql as $$
begin
    -- Waits for whoever has the lock: it may have drawn the pool down since it refilled it.
    perform pg_advisory_xact_lock(onehold.pool_lock_key(p_shop, p_sku, p_location));
    if onehold.needs_refill(p_shop, p_sku, p_location) then
        return onehold.refill_locked(p_shop, p_sku, p_location);
    end if;
    return 0;
end
$$;

-- Whether a refill would change something that matters: units to put out and fewer than half the bound out, or
-- more out than the bound or the stock allows.
create function onehold.needs_refill(p_shop int, p_sku text, p_location text) returns boolean
language plpgsql stable as $$
declare
    v_bound int := (select pool_bound from onehold.shops where id = p_shop);
    v record;
begin
    select * into v from onehold.pool_figures(p_shop, p_sku, p_location);
    return (v.pooled * 2 < v_bound and v.on_hand - v.held > v.pooled)
        or v.pooled > least(v_bound, greatest(v.on_hand - v.held, 0));
end
$$;

-- Enqueues the job that refills a pool, once while it waits or runs. Called by buyers, so it waits for nobody: who
-- finds another at it leaves it to him. Gives whether a job was put in.
create function onehold.enqueue_refill(p_shop int, p_sku text, p_location text) returns boolean
language plpgsql as $$
declare
    -- As JSON, since names may hold any sign that could stand between them.
    v_key text := jsonb_build_array(p_shop, p_sku, p_location)::text;
begin
    if exists (select from apalis.jobs
               where job_type = 'refill' and idempotency_key = v_key and status not in ('Done', 'Killed'))
       or not pg_try_advisory_xact_lock(hashtextextended(v_key, 8)) then
        return false;
    end if;
    return onehold.enqueue_job('refill', v_key,
        jsonb_build_object('v', 1, 'shop', p_shop, 'sku', p_sku, 'location', p_location), 5);
end
$$;

-- Looks at the next p_limit pools on the way round all of a shop's, and enqueues a refill for those that need one
-- and that nobody woke. Two at once do not do the same: one of them does nothing. Gives how many were looked at
-- and how many woken; fewer than p_limit looked at is the end of the way, and the next look begins anew.
create function onehold.wake_pools(p_shop int, p_limit int, out looked bigint, out woken bigint)
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
        if onehold.needs_refill(p_shop, v_last.sku, v_last.location)
           and onehold.enqueue_refill(p_shop, v_last.sku, v_last.location) then
            woken := woken + 1;
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

-- Takes up to n units out of a pool and gives their numbers. The search begins anywhere among the units that
-- are left, so that buyers who come at once seldom meet, and goes round once. What was picked is deleted within the
-- range that it spans: by a join or a list alone it would be looked for in the whole pool, wherever the statistics
-- take pools for small.
create function onehold.take_units(p_shop int, p_sku text, p_location text, p_n int) returns bigint[]
language plpgsql as $$
declare
    v_low bigint;
    v_next bigint;
    v_from bigint;
    v_taken bigint[];
    v_more bigint[];
begin
    select low_unit, next_unit into v_low, v_next from onehold.stock_levels
    where shop_id = p_shop and sku = p_sku and location = p_location;
    if v_low is null then
        return '{}';
    end if;
    v_from := v_low + floor(random() * greatest(v_next - v_low - p_n, 1))::bigint;
    with picked as materialized (
        select unit from onehold.pool_units
        where shop_id = p_shop and sku = p_sku and location = p_location and unit >= v_from
        order by unit limit p_n
        for update skip locked
    ), gone as (
        delete from onehold.pool_units u
        where u.shop_id = p_shop and u.sku = p_sku and u.location = p_location
          and u.unit between (select min(unit) from picked) and (select max(unit) from picked)
          and u.unit = any (array(select unit from picked))
        returning u.unit
    )
    select coalesce(array_agg(unit), '{}') into v_taken from gone;
    if cardinality(v_taken) < p_n then
        with picked as materialized (
            select unit from onehold.pool_units
            where shop_id = p_shop and sku = p_sku and location = p_location and unit < v_from
            order by unit desc limit p_n - cardinality(v_taken)
            for update skip locked
        ), gone as (
            delete from onehold.pool_units u
            where u.shop_id = p_shop and u.sku = p_sku and u.location = p_location
              and u.unit between (select min(unit) from picked) and (select max(unit) from picked)
              and u.unit = any (array(select unit from picked))
            returning u.unit
        )
        select coalesce(array_agg(unit), '{}') into v_more from gone;
        v_taken := v_taken || v_more;
    end if;
    return v_taken;
end
$$;

-- Reserves every stock line of an order whose row is locked, or says which line cannot be filled. Called first
-- with p_exact false: units are taken from the pools as they stand, without waiting for anyone. Where that does
-- not do, the caller undoes it and calls again with p_exact true: then every pool that a line may draw on is
-- locked, in one order for everybody, and refilled; what the pool cannot give comes from the rest, so that more
-- than a pool's bound can be had; and what is said to be missing is missing.
-- Gives {"filled": true, "woke": whether a refill was enqueued}, or {"short": {"line", "places": [{"location", "on_hand", "held", "own", "pooled"}]}}.
create function onehold.reserve_stock(p_shop int, p_order uuid, p_deadline timestamptz, p_exact boolean) returns jsonb
language plpgsql as $$
declare
    v_line record;
    v_place record;
    v_units bigint[];
    v_rest bigint;
    v_left int;
    v_had int;
    v_slot smallint;
    v_tried jsonb;
    v_bound int := (select pool_bound from onehold.shops where id = p_shop);
    v_woke boolean := false;
begin
    if p_exact then
        for v_place in
            select l.sku, s.location, sum(l.quantity) as wanted from onehold.order_lines l
            join onehold.stock_levels s on s.shop_id = l.shop_id and s.sku = l.sku
                and (l.locations is null or s.location = any (l.locations))
            where l.shop_id = p_shop and l.order_id = p_order and l.sku is not null
            group by l.sku, s.location
            order by l.sku, s.location
        loop
            perform pg_advisory_xact_lock(onehold.pool_lock_key(p_shop, v_place.sku, v_place.location));
            -- Whoever waited here finds what the one before has put out. If all that wait counted and refilled
            -- again, the last of them would wait for the sum of it.
            if (select count(*) from (
                    select from onehold.pool_units
                    where shop_id = p_shop and sku = v_place.sku and location = v_place.location
                    order by unit desc limit v_place.wanted) enough) < v_place.wanted then
                perform onehold.refill_locked(p_shop, v_place.sku, v_place.location);
            end if;
        end loop;
    end if;
    for v_line in
        select l.line, l.sku, l.quantity, l.locations, l.split from onehold.order_lines l
        where l.shop_id = p_shop and l.order_id = p_order and l.sku is not null
          -- A line that has its reservation keeps it.
          and not exists (select from onehold.reservations r
                          where r.shop_id = p_shop and r.order_id = p_order and r.line = l.line)
        order by l.sku, l.line
    loop
        v_left := v_line.quantity;
        v_slot := 0;
        v_tried := '[]';
        for v_place in
            select s.location from onehold.stock_levels s
            where s.shop_id = p_shop and s.sku = v_line.sku
              and (v_line.locations is null or s.location = any (v_line.locations))
            -- As preferred; where all are equal, the fullest first, so that load spreads.
            order by array_position(v_line.locations, s.location),
                     case when v_line.locations is null and exists (
                         select from onehold.stock_levels o
                         where o.shop_id = p_shop and o.sku = s.sku and o.location <> s.location) then
                         (select count(*) from onehold.pool_units u
                          where u.shop_id = p_shop and u.sku = s.sku and u.location = s.location) end desc,
                     s.location
        loop
            v_units := onehold.take_units(p_shop, v_line.sku, v_place.location, v_left);
            v_had := cardinality(v_units);
            if p_exact and v_had < v_left then
                -- The pool gave what it could; the rest is what no unit row stands for.
                select f.on_hand - f.held - f.pooled - v_had into v_rest
                from onehold.pool_figures(p_shop, v_line.sku, v_place.location) f;
                v_had := v_had + least(greatest(v_rest, 0), v_left - v_had)::int;
            end if;
            v_tried := v_tried || jsonb_build_object('location', v_place.location, 'had', v_had);
            if v_had > 0 and (v_had = v_left or v_line.split) then
                v_slot := v_slot + 1;
                insert into onehold.reservations
                    (shop_id, order_id, line, slot, state, sku, location, quantity, expires_at, reason)
                values (p_shop, p_order, v_line.line, v_slot, 'held', v_line.sku, v_place.location, v_had, p_deadline,
                    jsonb_build_object(
                        'asked', jsonb_build_object('sku', v_line.sku, 'quantity', v_line.quantity,
                                                    'locations', v_line.locations, 'split', v_line.split),
                        'tried', v_tried,
                        'taken', jsonb_build_object('location', v_place.location, 'quantity', v_had,
                                                    'from_pool', cardinality(v_units))));
                -- To count what is left would cost every buyer. So about ten times while a pool is sold, by
                -- chance, a job looks whether it has fallen low. Under the lock it was refilled just now.
                if not p_exact and random() < v_had / (v_bound / 10.0)
                   and onehold.enqueue_refill(p_shop, v_line.sku, v_place.location) then
                    v_woke := true;
                end if;
                v_left := v_left - v_had;
            elsif cardinality(v_units) > 0 then
                -- Not enough for one location to fill the line: they go back as they were.
                insert into onehold.pool_units (shop_id, sku, location, unit)
                select p_shop, v_line.sku, v_place.location, u from unnest(v_units) u;
            end if;
            exit when v_left = 0;
        end loop;
        if v_left > 0 and not p_exact then
            -- What each place has is asked when it matters: under the locks.
            return jsonb_build_object('short', jsonb_build_object('line', v_line.line, 'places', '[]'::jsonb));
        end if;
        if v_left > 0 then
            -- What this line got so far goes back with the refusal: it is neither held by anyone nor gone.
            return jsonb_build_object('short', jsonb_build_object('line', v_line.line, 'places', coalesce((
                select jsonb_agg(jsonb_build_object('location', s.location, 'on_hand', f.on_hand,
                    'held', f.held - mine.of_line, 'pooled', f.pooled, 'own', mine.of_others,
                    -- In the same statement as the figures: the next may find them ended by someone else.
                    'lapsed', (
                        select coalesce(sum(r.quantity), 0) from onehold.reservations r
                        where r.shop_id = p_shop and r.sku = s.sku and r.location = s.location and r.state = 'held'
                          and r.expires_at <= clock_timestamp()),
                    'wanted', v_line.locations is null or s.location = any (v_line.locations)))
                from onehold.stock_levels s
                cross join lateral onehold.pool_figures(p_shop, s.sku, s.location) f
                cross join lateral (
                    select coalesce(sum(r.quantity) filter (where r.line = v_line.line), 0) as of_line,
                           coalesce(sum(r.quantity) filter (where r.line <> v_line.line), 0) as of_others
                    from onehold.reservations r
                    where r.shop_id = p_shop and r.order_id = p_order and r.state = 'held'
                      and r.sku = s.sku and r.location = s.location) mine
                where s.shop_id = p_shop and s.sku = v_line.sku), '[]')));
        end if;
    end loop;
    return jsonb_build_object('filled', true, 'woke', v_woke);
end
$$;

-- Posts a movement once per reference. A movement that takes away is checked against what is held, under the
-- pool's lock; forced, it records what is then lacking. Gives posted, replayed, reference_reused or
-- would_oversell, and the movement.
create function onehold.post_movement(
    p_shop int, p_sku text, p_location text, p_delta int, p_kind text, p_reference text, p_actor text, p_force boolean,
    out outcome text, out movement uuid, out lacking bigint
)
language plpgsql as $$
declare
    v_constraint text;
    v record;
    v_excess bigint;
    v_taken bigint := 0;
begin
    -- One lock for everything that changes on-hand by hand: also what decides whether a shortfall is cleared.
    perform pg_advisory_xact_lock(onehold.pool_lock_key(p_shop, p_sku, p_location));
    select m.id, (m.sku, m.location, m.delta, m.kind) = (p_sku, p_location, p_delta, p_kind) as same into v
    from onehold.stock_movements m where m.shop_id = p_shop and m.reference = p_reference;
    if found then
        movement := v.id;
        outcome := case when v.same then 'replayed' else 'reference_reused' end;
        return;
    end if;
    select * into v from onehold.pool_figures(p_shop, p_sku, p_location);
    if p_delta < 0 then
        -- Unit rows for which there is no stock any more go first. One that is locked is being bought at this
        -- moment: it is as good as held.
        v_excess := least(v.pooled, v.held + v.pooled - (v.on_hand + p_delta));
        if v_excess > 0 then
            v_taken := onehold.take_in(p_shop, p_sku, p_location, v_excess);
        end if;
        lacking := v.held + v.pooled - v_taken - (v.on_hand + p_delta);
        if lacking > 0 and not p_force then
            outcome := 'would_oversell';
            -- What was taken out goes back with the caller's rollback.
            return;
        end if;
    end if;
    begin
        insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference, actor)
        values (p_shop, p_sku, p_location, p_delta, p_kind, p_reference, p_actor)
        returning id into movement;
    exception when unique_violation then
        get stacked diagnostics v_constraint = constraint_name;
        if v_constraint !~ '^one_movement_per_reference(_[0-9]+)?$' then
            raise;
        end if;
        -- The same reference at once on another pool.
        outcome := 'reference_reused';
        return;
    end;
    outcome := 'posted';
    lacking := greatest(v.held + v.pooled - v_taken - (v.on_hand + p_delta), 0);
    if lacking > 0 and p_delta < 0 then
        insert into onehold.stock_shortfalls (shop_id, sku, location, units, reference)
        values (p_shop, p_sku, p_location, lacking, p_reference)
        on conflict (shop_id, sku, location) where cleared_at is null
            do update set units = excluded.units, reference = excluded.reference;
    end if;
    -- Settles the shortfall where this movement brought what was lacking.
    perform onehold.refill_locked(p_shop, p_sku, p_location);
end
$$;

-- Rolls up what of the ledger has been appended since, at most p_limit movements. Passes over rows that somebody
-- has locked. Gives how many were rolled up. One pool after the other, each by its key: this table is mostly empty
-- and now and then holds a million rows that were imported, and a join planned for the one is hopeless for the other.
create function onehold.roll_up(p_shop int, p_limit int) returns bigint
language plpgsql as $$
declare
    v_pool record;
    v_ids bigint[];
    v_sum bigint;
    v_count bigint := 0;
begin
    for v_pool in
        -- In one order, as every one who locks several levels.
        select sku, location, count(*) as n from (
            select sku, location from onehold.stock_deltas where shop_id = p_shop
            order by sku, location, id limit p_limit) appended
        group by sku, location order by sku, location
    loop
        select array_agg(id order by id), sum(delta) into v_ids, v_sum from (
            select id, delta from onehold.stock_deltas
            where shop_id = p_shop and sku = v_pool.sku and location = v_pool.location
            order by id limit v_pool.n for update skip locked) picked;
        if v_ids is not null then
            delete from onehold.stock_deltas
            where shop_id = p_shop and sku = v_pool.sku and location = v_pool.location
              and id between v_ids[1] and v_ids[cardinality(v_ids)] and id = any (v_ids);
            update onehold.stock_levels set rolled = rolled + v_sum
            where shop_id = p_shop and sku = v_pool.sku and location = v_pool.location;
            v_count := v_count + cardinality(v_ids);
        end if;
    end loop;
    return v_count;
end
$$;

-- Expires those of the given orders that have a lapsed hold; the caller has locked them. An order lapses whole,
-- and its units go back to their pools. Gives the orders that were expired.
create function onehold.expire_orders(
    p_shop int, p_orders uuid[], p_actor text, p_give_back boolean default true
) returns setof uuid
language plpgsql as $$
declare
    v_expired uuid[];
begin
    with lapsed as (
        -- A new statement, so a new snapshot: an extension that won the lock before us is seen.
        select distinct order_id from onehold.reservations
        where shop_id = p_shop and order_id = any (p_orders) and state = 'held' and expires_at <= clock_timestamp()
    ), ended as (
        update onehold.reservations r set state = 'expired'
        from lapsed l
        where r.shop_id = p_shop and r.order_id = l.order_id and r.state = 'held'
        returning r.order_id, r.expires_at
    ), marked as (
        update onehold.orders o set status = 'expired'
        from (select order_id, min(expires_at) as deadline, count(*) as holds from ended group by order_id) e
        where o.shop_id = p_shop and o.id = e.order_id and o.status = 'reserved'
        returning o.id, e.deadline, e.holds
    ), told as (
        insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
        select p_shop, id, 'expired', p_actor, jsonb_build_object('deadline', deadline, 'holds', holds) from marked
    )
    select array_agg(id) into v_expired from marked;
    if p_give_back then
        perform onehold.give_back(p_shop, v_expired);
    end if;
    return query select unnest(v_expired);
end
$$;

-- Refills the pools that the ended reservations of these orders had drawn on, where nobody else is at it and
-- there is room: a hold that ends leaves its units in the rest, and here they become sellable rows again.
create function onehold.give_back(p_shop int, p_orders uuid[]) returns void
language plpgsql as $$
declare
    v record;
begin
    for v in
        select distinct sku, location from onehold.reservations
        where shop_id = p_shop and order_id = any (p_orders) and sku is not null
        order by sku, location
    loop
        perform onehold.refill_if_free(p_shop, v.sku, v.location);
    end loop;
end
$$;

-- Cancels an order for a person: placed and reserved orders end, and their holds with them. A hold that has
-- lapsed by now expires instead: a lapse and a cancellation are different for ever. Gives what became of the
-- wish: done, unchanged, already_converted or no_such_order.
create function onehold.end_by_cancelling(p_shop int, p_order uuid, p_actor text, p_reason text)
returns text
language plpgsql as $$
declare
    v_status text := (select status from onehold.orders where shop_id = p_shop and id = p_order for update);
    v_holds bigint;
begin
    if v_status is null then
        return 'no_such_order';
    elsif v_status in ('converted', 'released') then
        return 'already_converted';
    elsif v_status not in ('placed', 'reserved') then
        return 'unchanged';
    end if;
    if exists (select from onehold.expire_orders(p_shop, array[p_order], p_actor)) then
        return 'unchanged';
    end if;
    update onehold.reservations set state = 'cancelled'
    where shop_id = p_shop and order_id = p_order and state = 'held';
    get diagnostics v_holds = row_count;
    update onehold.orders set status = 'cancelled' where shop_id = p_shop and id = p_order;
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    values (p_shop, p_order, 'cancelled', p_actor, jsonb_build_object('reason', p_reason, 'holds', v_holds));
    perform onehold.give_back(p_shop, array[p_order]);
    -- Money that came early is owed back.
    perform onehold.enqueue_payments(p_shop, p_order, 'cancelled');
    return 'done';
end
$$;
