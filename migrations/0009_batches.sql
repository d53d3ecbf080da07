-- Why: one commit costs an fsync, whatever is in it. Orders that ask for stock at the same moment are reserved
-- in one transaction, each under a savepoint of its own.
-- Previous release: survives; it reserves its orders one by one.

-- Turns a placed order whose holds were just written into a reserved one, tells its history, and wakes the
-- payments that waited for it. The caller has locked the order.
create function onehold.mark_reserved(p_shop int, p_order uuid) returns void
language plpgsql as $$
declare
    v_reference text;
begin
    update onehold.orders set status = 'reserved' where shop_id = p_shop and id = p_order and status = 'placed'
    returning reference into v_reference;
    if not found then
        raise exception 'order % was not placed any more under its own lock', p_order;
    end if;
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    select p_shop, p_order, 'reserved', 'worker', jsonb_build_object(
        'deadline', min(r.expires_at),
        'reservations', jsonb_agg(
            jsonb_strip_nulls(jsonb_build_object('line', r.line, 'asset', a.key, 'sku', r.sku))
            || jsonb_build_object('location', r.location, 'quantity', r.quantity)
            -- The history of a very large order names its reservations, whose rows say why.
            || case when r.n <= 100 then jsonb_build_object('reason', r.reason) else '{}' end
            order by r.line, r.slot))
    from (select *, row_number() over (order by line, slot) as n from onehold.reservations
          where shop_id = p_shop and order_id = p_order) r
    left join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id;
    -- Money that came before its hold is rare, and asking for it here is cheap: the plan is kept.
    if exists (select from onehold.payment_events e
               where e.shop_id = p_shop and e.state = 'pending'
                 and e.order_ref in (p_order::text, upper(p_order::text), v_reference)) then
        perform onehold.enqueue_payments(p_shop, p_order, 'reserved');
    end if;
end
$$;

-- Refills the pools that an order may draw on, where nobody else is at it. Gives whether anything was put out.
create function onehold.refill_for(p_shop int, p_order uuid) returns boolean
language plpgsql as $$
declare
    v record;
    v_put bigint := 0;
begin
    for v in
        select distinct l.sku, s.location from onehold.order_lines l
        join onehold.stock_levels s on s.shop_id = l.shop_id and s.sku = l.sku
            and (l.locations is null or s.location = any (l.locations))
        where l.shop_id = p_shop and l.order_id = p_order and l.sku is not null
        order by l.sku, s.location
    loop
        v_put := v_put + onehold.refill_if_free(p_shop, v.sku, v.location);
    end loop;
    return v_put > 0;
end
$$;

-- Reserves those of the given orders that the quick way suffices for: placed, stock lines only, and enough
-- units at hand that nobody else has locked. Each stands or falls by itself. Gives reserved, decided (it is not
-- placed any more) or apart (it needs the careful way: assets, refills, refusals, or its lock is taken).
create function onehold.reserve_batch(p_shop int, p_orders uuid[]) returns table (order_id uuid, outcome text, woke boolean)
language plpgsql as $$
declare
    v_order record;
    v_reserved jsonb;
    v_try int;
begin
    for v_order in
        -- In one order for everybody; and nobody is waited for, as one order's wait would be all the others'.
        select o.id, o.status, clock_timestamp() + make_interval(secs => o.hold_seconds) as deadline
        from onehold.orders o
        where o.shop_id = p_shop and o.id = any (p_orders)
          -- Orders that want an asset are not even locked: a lock is written, and a commit that wrote is flushed.
          and not exists (select from onehold.order_lines l
                          where l.shop_id = p_shop and l.order_id = o.id and l.asset is not null)
        order by o.id
        for update skip locked
    loop
        order_id := v_order.id;
        woke := false;
        if v_order.status <> 'placed' then
            outcome := 'decided';
            return next;
            continue;
        end if;
        outcome := 'apart';
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
