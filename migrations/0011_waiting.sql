-- Why: an order may wait for stock instead of being refused, and gets what comes free in the transaction that
-- frees it; and a shop may limit how much one buyer holds.
-- Previous release: survives; it lets nobody wait, limits nobody, and refuses a waiting order that it meets. Three
-- partial indexes are built on existing tables, which keeps writers waiting for as long as one scan takes.

alter table onehold.shops
    -- How much one buyer may hold at a time: each asset and each unit counts one. Null: as much as he likes.
    add column max_holds_per_buyer int,
    add constraint max_holds_per_buyer_is_sane check (max_holds_per_buyer between 1 and 1000000);

alter table onehold.orders
    -- Set when the order began to wait. It waits while it is still placed.
    add column waiting_until timestamptz;
alter table onehold.order_lines
    -- Set while the order waits: so that whoever frees something finds those who want it, and nobody else.
    add column waits boolean not null default false;

-- Whether anyone waits at all, and for whom it is over.
create index waiting_orders on onehold.orders (shop_id, waiting_until)
    where status = 'placed' and waiting_until is not null;
-- Who waits for this SKU or category, oldest first: ids are UUIDv7.
create index lines_that_wait on onehold.order_lines (shop_id, coalesce(sku, asset->>'category'), order_id)
    where waits;
create index reserved_orders_by_buyer on onehold.orders (shop_id, buyer)
    where buyer is not null and status = 'reserved';

-- The lock of a shop's waiting list. Whoever frees stock has it shared, whoever begins to wait alone. So he who
-- begins to wait looks once more when everyone who frees has committed, and who frees after that sees him waiting.
create function onehold.waiting_lock_key(p_shop int) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(p_shop::text, 9) $$;

-- Called by whoever is going to free something: after his order's row is locked, before assets and pools are. Gives
-- whether anyone waits. Who begins to wait later waits for this transaction first, so the answer stays good.
create function onehold.enter_waiting_list(p_shop int) returns boolean
language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(onehold.waiting_lock_key(p_shop));
    -- A statement of its own, so a new snapshot: it sees who waited while this one waited for the lock.
    return exists (select from onehold.orders
                   where shop_id = p_shop and status = 'placed' and waiting_until is not null);
end
$$;

-- Whether the order would take its buyer above the shop's limit. Orders of one buyer meet at a lock that lasts to
-- the end of the transaction: who comes next counts what the one before has committed. Lapsed holds do not count.
-- Without p_wait nobody is waited for: null says that another order of this buyer is being decided.
create function onehold.is_over_limit(p_shop int, p_order uuid, p_wait boolean) returns boolean
language plpgsql as $$
declare
    v record;
    v_key bigint;
begin
    select o.buyer, s.max_holds_per_buyer as most into v
    from onehold.orders o join onehold.shops s on s.id = o.shop_id
    where o.shop_id = p_shop and o.id = p_order;
    if v.buyer is null or v.most is null then
        return false;
    end if;
    v_key := hashtextextended(p_shop || '/' || v.buyer, 10);
    if p_wait then
        perform pg_advisory_xact_lock(v_key);
    elsif not pg_try_advisory_xact_lock(v_key) then
        return null;
    end if;
    -- A statement of its own, after the lock.
    return (select sum(quantity) from onehold.order_lines where shop_id = p_shop and order_id = p_order)
        + (select coalesce(sum(r.quantity), 0)
           from onehold.orders o
           join onehold.reservations r
             on r.shop_id = o.shop_id and r.order_id = o.id and r.state = 'held' and r.expires_at > clock_timestamp()
           where o.shop_id = p_shop and o.buyer = v.buyer and o.status = 'reserved' and o.id <> p_order) > v.most;
end
$$;

-- Locks what a decision about an order needs, in the one order of locks: its row, its buyer, the waiting list (alone
-- where it is going to wait). Assets and pools come after. Gives no row where there is no such order.
create function onehold.lock_for_reserving(p_shop int, p_order uuid, p_alone boolean) returns table (
    status text, deadline timestamptz, has_stock_lines boolean, waiting boolean, may_wait boolean,
    over_limit boolean, anyone_waits boolean
)
language plpgsql as $$
declare
    v record;
begin
    select o.status, o.hold_seconds, o.waiting_until is not null as waiting,
           o.placed_at + make_interval(secs => o.wait_seconds) as until
    into v from onehold.orders o where o.shop_id = p_shop and o.id = p_order for update;
    if not found then
        return;
    end if;
    over_limit := false;
    anyone_waits := false;
    if v.status = 'placed' then
        over_limit := onehold.is_over_limit(p_shop, p_order, true);
        if p_alone then
            perform pg_advisory_xact_lock(onehold.waiting_lock_key(p_shop));
        end if;
        anyone_waits := onehold.enter_waiting_list(p_shop);
    end if;
    status := v.status;
    waiting := v.waiting;
    -- Judged after the locks, by this clock.
    may_wait := v.until > clock_timestamp();
    deadline := clock_timestamp() + make_interval(secs => v.hold_seconds);
    has_stock_lines := exists (select from onehold.order_lines l
                               where l.shop_id = p_shop and l.order_id = p_order and l.sku is not null);
    return next;
end
$$;

-- Whether a line could be filled by one of these assets, as far as this one thing goes.
create function onehold.asset_fits(p_asset onehold.assets, p_wanted jsonb) returns boolean
language sql stable as $$
    select p_asset.category = p_wanted->>'category'
        and p_asset.status = 'ready' and p_asset.owner_id is null
        and (p_asset.available_from is null or p_asset.available_from <= clock_timestamp())
        and (p_wanted->>'vendor' is null or p_asset.vendor = p_wanted->>'vendor')
        and case jsonb_typeof(p_wanted->'locations') when 'array' then p_wanted->'locations' ? p_asset.location
                 else true end
        and onehold.attributes_match(p_asset.attributes, coalesce(p_wanted->'attributes', '{}'))
$$;

-- The waiting orders, oldest first and but for those of p_passed, of which a line wants what stands free among these
-- assets and pools; before the order p_before, where that is given. Once what was freed is taken, there is no want left
-- to look for: nobody is looked at.
create function onehold.waiting_that_fit(
    p_shop int, p_assets uuid[], p_skus text[], p_locations text[], p_before uuid, p_passed uuid[]
) returns setof uuid
language plpgsql as $$
begin
    return query
    with free_assets as materialized (
        select a from onehold.assets a
        where a.shop_id = p_shop and a.id = any (p_assets) and a.status = 'ready' and a.owner_id is null
    ), free_units as materialized (
        select p.sku, p.location, f.on_hand - f.held as available
        from unnest(p_skus, p_locations) p (sku, location)
        cross join lateral onehold.pool_figures(p_shop, p.sku, p.location) f
        where f.on_hand > f.held
    ), wants as (
        select (a).category as want from free_assets union select sku from free_units
    ), near as (
        -- The bound is on rows of an index; who stands behind it is woken by the housekeeping.
        select l.* from wants w cross join lateral (
            select l.order_id, l.asset, l.sku, l.locations, l.split, l.quantity from onehold.order_lines l
            where l.shop_id = p_shop and l.waits and coalesce(l.sku, l.asset->>'category') = w.want
              and (p_before is null or l.order_id < p_before)
              and l.order_id <> all (p_passed)
            order by l.order_id
            limit 1000) l
    )
    select distinct n.order_id from near n
    where exists (select from free_assets f where n.asset is not null and onehold.asset_fits(f.a, n.asset))
       or exists (select from free_units u
                  where u.sku = n.sku and (n.locations is null or u.location = any (n.locations))
                    and (n.split or u.available >= n.quantity))
    order by n.order_id;
end
$$;

-- The oldest of them. Locks its row: passing over those that somebody has locked, because the caller has locks on
-- assets and pools already, and waiting for an order's row now would be against the order of locks, and could be a
-- deadlock. Gives no row where nobody fits. `limited` is as in is_over_limit.
create function onehold.next_waiting(
    p_shop int, p_assets uuid[], p_skus text[], p_locations text[], p_before uuid, p_passed uuid[]
) returns table (order_id uuid, deadline timestamptz, has_stock_lines boolean, limited boolean)
language plpgsql as $$
begin
    select o.id, clock_timestamp() + make_interval(secs => o.hold_seconds) into order_id, deadline
    from onehold.orders o
    where o.shop_id = p_shop and o.status = 'placed' and o.waiting_until > clock_timestamp()
      and o.id in (select onehold.waiting_that_fit(p_shop, p_assets, p_skus, p_locations, p_before, p_passed))
    order by o.id
    limit 1
    for update of o skip locked;
    if order_id is null then
        return;
    end if;
    has_stock_lines := exists (select from onehold.order_lines l
                               where l.shop_id = p_shop and l.order_id = next_waiting.order_id and l.sku is not null);
    limited := onehold.is_over_limit(p_shop, order_id, false);
    return next;
end
$$;

-- Puts a job in for the oldest of them that is left, which somebody has locked: he may have looked at it before this
-- transaction frees what it wants, and then nobody else would look again. Gives whether there is one.
create function onehold.wake_passed_over(
    p_shop int, p_assets uuid[], p_skus text[], p_locations text[], p_passed uuid[]
) returns boolean
language plpgsql as $$
declare
    v_order uuid := (select o.id from onehold.orders o
                     where o.shop_id = p_shop and o.status = 'placed' and o.waiting_until > clock_timestamp()
                       and o.id in (select onehold.waiting_that_fit(p_shop, p_assets, p_skus, p_locations, null,
                                                                    p_passed))
                     order by o.id limit 1);
begin
    return v_order is not null and onehold.wake(p_shop, v_order);
end
$$;

-- Lets a placed order wait whose row is locked, whose caller has the waiting list alone, and who found nothing: told
-- once in its history. A job of its own refuses it when its time is over, if nobody served it before.
create function onehold.begin_to_wait(p_shop int, p_order uuid, p_refusal jsonb) returns void
language plpgsql as $$
declare
    v_until timestamptz;
begin
    update onehold.orders set waiting_until = placed_at + make_interval(secs => wait_seconds)
    where shop_id = p_shop and id = p_order and status = 'placed' and waiting_until is null
    returning waiting_until into v_until;
    if not found then
        raise exception 'order % waits already, or is decided', p_order;
    end if;
    update onehold.order_lines set waits = true where shop_id = p_shop and order_id = p_order;
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    values (p_shop, p_order, 'waiting', 'worker', jsonb_build_object('until', v_until) || p_refusal);
    perform onehold.enqueue_job('reserve', p_order || ':until',
        jsonb_build_object('v', 1, 'shop', p_shop, 'order', p_order), 20, v_until - clock_timestamp());
end
$$;

-- Puts a reserve job in for a waiting order. Its key is this transaction's own: a job of another may be ending at
-- this very moment, having looked too early, and must not swallow this one.
create function onehold.wake(p_shop int, p_order uuid, p_delay interval default '0') returns boolean
language sql volatile as $$
    select onehold.enqueue_job('reserve', p_order || ':wake:' || pg_current_xact_id(),
        jsonb_build_object('v', 1, 'shop', p_shop, 'order', p_order), 20, p_delay)
$$;

-- Whether each line of an order, taken by itself, could be filled from what stands free now.
create function onehold.looks_fillable(p_shop int, p_order uuid) returns boolean
language plpgsql stable as $$
begin
    return not exists (
        select from onehold.order_lines l
        where l.shop_id = p_shop and l.order_id = p_order
          and not case when l.asset is not null then
              exists (select from onehold.assets a
                      where a.shop_id = p_shop and a.category = l.asset->>'category'
                        and a.status = 'ready' and a.owner_id is null and onehold.asset_fits(a, l.asset))
          else coalesce((
              select case when l.split then sum(f.on_hand - f.held) else max(f.on_hand - f.held) end >= l.quantity
              from onehold.stock_levels s
              cross join lateral onehold.pool_figures(p_shop, s.sku, s.location) f
              where s.shop_id = p_shop and s.sku = l.sku
                and (l.locations is null or s.location = any (l.locations)) and f.on_hand > f.held), false) end);
end
$$;

-- For stock that comes free where nobody can be served at once: a cancellation inside a caller's own transaction, an
-- import, an asset whose time has come, more at once than one transaction serves. Puts a reserve job in for up to
-- p_limit waiting orders that look as if they could be filled, oldest first; no more than a thousand are looked at.
-- Gives how many were woken. That a job of an older one comes first is seen to by the jobs themselves.
create function onehold.wake_waiting(p_shop int, p_limit int) returns bigint
language plpgsql as $$
declare
    v_woken bigint;
begin
    if not exists (select from onehold.orders
                   where shop_id = p_shop and status = 'placed' and waiting_until is not null) then
        return 0;
    end if;
    select count(*) filter (where onehold.wake(p_shop, fit.id)) into v_woken from (
        select waits.id from (
            select id from onehold.orders
            where shop_id = p_shop and status = 'placed' and waiting_until is not null
            order by id limit 1000) waits
        where onehold.looks_fillable(p_shop, waits.id)
        order by waits.id limit p_limit) fit;
    return v_woken;
end
$$;

-- Takes the lines of orders that wait no more out of the index of those who wait: whoever ends an order without
-- knowing of the waiting list leaves them there, where they cost a look. Gives how many lines.
create function onehold.forget_waiting(p_shop int, p_limit int) returns bigint
language sql volatile as $$
    with stale as (
        select l.order_id, l.line from onehold.order_lines l
        join onehold.orders o on o.shop_id = l.shop_id and o.id = l.order_id
        where l.shop_id = p_shop and l.waits and (o.status <> 'placed' or o.waiting_until is null)
        limit p_limit
        for update of l skip locked
    ), forgotten as (
        update onehold.order_lines l set waits = false from stale s
        where l.shop_id = p_shop and l.order_id = s.order_id and l.line = s.line
        returning 1
    )
    select count(*) from forgotten
$$;

-- As before (0007), and those who wait for what this frees are woken: their jobs run when the caller has committed.
-- They are not served here, as the caller's transaction may stay open for as long as he likes: it must not keep the
-- lock of the waiting list, nor the rows of other orders.
create or replace function onehold.cancel_order(shop text, id uuid, reason text) returns void
language plpgsql as $$
declare
    v_shop int := (select s.id from onehold.shops s where s.name = shop);
begin
    -- Lines are allowed, as over HTTP.
    if length(reason) not between 1 and 1000 then
        raise exception 'invalid_body: the body does not fit' using errcode = 'OH422',
            detail = '[{"pointer": "/reason", "detail": "must have 1 to 1000 characters"}]';
    end if;
    case onehold.end_by_cancelling(v_shop, cancel_order.id, 'sql', reason)
        when 'no_such_order' then
            raise exception 'not_found: the shop has no order %', cancel_order.id using errcode = 'OH404';
        when 'already_converted' then
            raise exception 'already_converted: the order is sold; release it instead' using errcode = 'OH409';
        else
            perform pg_notify('onehold_orders', cancel_order.id::text);
            if onehold.wake_waiting(v_shop, 100) > 0 then
                perform pg_notify('onehold_jobs', 'reserve');
            end if;
    end case;
end
$$;

-- Reserves those of the given orders that the quick way suffices for: placed, stock lines only, and enough
-- units at hand that nobody else has locked. First all of them as a set, then each of the rest by itself. Gives
-- reserved, decided (it is not placed any more) or apart (it needs the careful way: assets, refills, refusals, or
-- its lock is taken). As in 0010; beside that, what waits, what may stand behind someone who waits, and what a limit
-- may refuse goes the careful way.
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
    v_limited boolean := (select max_holds_per_buyer is not null from onehold.shops where id = p_shop);
begin
    -- In one order for everybody; and nobody is waited for, as one order's wait would be all the others'.
    with locked as materialized (
        select o.id, o.status, clock_timestamp() + make_interval(secs => o.hold_seconds) as deadline,
               o.waiting_until is null and (o.buyer is null or not v_limited) as plain
        from onehold.orders o
        where o.shop_id = p_shop and o.id = any (p_orders)
          -- Orders that want an asset are not even locked: a lock is written, and a commit that wrote is flushed.
          and not exists (select from onehold.order_lines l
                          where l.shop_id = p_shop and l.order_id = o.id and l.asset is not null)
        order by o.id
        for update skip locked
    )
    select array_agg(id) filter (where status = 'placed' and plain),
           array_agg(deadline) filter (where status = 'placed' and plain),
           array_agg(id) filter (where status <> 'placed')
    into v_placed, v_deadlines, v_decided
    from locked;
    return query select id, 'decided', false from unnest(v_decided) id;
    if v_placed is null then
        return;
    end if;
    -- Whoever begins to wait now waits for this batch first, and looks again then.
    if onehold.enter_waiting_list(p_shop) then
        select array_agg(o.id order by o.id), array_agg(o.deadline order by o.id) into v_placed, v_deadlines
        from unnest(v_placed, v_deadlines) as o (id, deadline)
        where not exists (
            select from onehold.order_lines l
            join onehold.order_lines w on w.shop_id = p_shop and w.waits and coalesce(w.sku, w.asset->>'category') = l.sku
            where l.shop_id = p_shop and l.order_id = o.id);
        if v_placed is null then
            return;
        end if;
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
