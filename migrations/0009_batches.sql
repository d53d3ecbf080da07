-- Why: one commit costs an fsync, whatever is in it. Orders that ask for stock at the same moment are reserved
-- in one transaction, each under a savepoint of its own.
-- Previous release: survives; it reserves its orders one by one.

-- Turns a placed order whose holds were just written into a reserved one, tells its history, and wakes the
-- payments that waited for it. The caller has locked the order.
create function onehold.mark_reserved(p_shop int, p_order uuid) returns void
language plpgsql as $$
begin
    update onehold.orders set status = 'reserved' where shop_id = p_shop and id = p_order and status = 'placed';
    if not found then
        raise exception 'order % was not placed any more under its own lock', p_order;
    end if;
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    select p_shop, p_order, 'reserved', 'worker', jsonb_build_object(
        'deadline', min(r.expires_at),
        'reservations', jsonb_agg(
            jsonb_strip_nulls(jsonb_build_object('line', r.line, 'asset', a.key, 'sku', r.sku))
            || jsonb_build_object('location', r.location, 'quantity', r.quantity, 'reason', r.reason)
            order by r.line, r.slot))
    from onehold.reservations r
    left join onehold.assets a on a.shop_id = r.shop_id and a.id = r.asset_id
    where r.shop_id = p_shop and r.order_id = p_order;
    perform onehold.enqueue_payments(p_shop, p_order, 'reserved');
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
begin
    for v_order in
        -- In one order for everybody; and nobody is waited for, as one order's wait would be all the others'.
        select o.id, o.status, clock_timestamp() + make_interval(secs => o.hold_seconds) as deadline
        from onehold.orders o
        where o.shop_id = p_shop and o.id = any (p_orders)
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
        if exists (select from onehold.order_lines l
                   where l.shop_id = p_shop and l.order_id = v_order.id and l.asset is not null) then
            outcome := 'apart';
            return next;
            continue;
        end if;
        begin
            v_reserved := onehold.reserve_stock(p_shop, v_order.id, v_order.deadline, false);
            if v_reserved ? 'short' then
                raise exception 'short' using errcode = 'OHSHT';
            end if;
            perform onehold.mark_reserved(p_shop, v_order.id);
            outcome := 'reserved';
            woke := (v_reserved->>'woke')::boolean;
        exception when sqlstate 'OHSHT' then
            outcome := 'apart';
        end;
        return next;
    end loop;
end
$$;
