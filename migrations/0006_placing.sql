-- Why: an order and its reserve job exist both or not at all, whether the order comes over HTTP or from
-- SQL inside a web app's own transaction. Both ways end in this one function.
-- Previous release: none; this is the first.

-- Stores an order that was checked, once per key. `p_body` is the request as sent (compared on a replay),
-- `p_lines` its lines with normalised names. Gives the order's id and one of
-- placed (new), replayed (same key, same body), key_reused (same key, another body).
create function onehold.store_order(
    p_shop int, p_key text, p_body jsonb, p_lines jsonb, p_actor text,
    out order_id uuid, out outcome text
)
language plpgsql as $$
declare
    v_body jsonb;
begin
    insert into onehold.orders
        (shop_id, id, idempotency_key, reference, placed_by, hold_seconds, buyer, wait_seconds, amount, currency, body)
    select p_shop, onehold.uuid_v7(), p_key, p_body->>'reference', p_actor,
           coalesce((p_body->>'hold_seconds')::numeric::int, s.hold_seconds),
           p_body->>'buyer', coalesce((p_body->>'wait_seconds')::numeric::int, 0),
           (p_body#>>'{payment,amount}')::numeric::bigint, p_body#>>'{payment,currency}', p_body
    from onehold.shops s where s.id = p_shop
    on conflict on constraint one_order_per_key do nothing
    returning id into order_id;

    if order_id is null then
        -- A new statement, so a new snapshot: it sees the neighbour that has just committed.
        select o.id, o.body into order_id, v_body
        from onehold.orders o where o.shop_id = p_shop and o.idempotency_key = p_key;
        outcome := case when v_body = p_body then 'replayed' else 'key_reused' end;
        return;
    end if;
    outcome := 'placed';

    insert into onehold.order_lines (shop_id, order_id, line, asset, sku, locations, split, quantity)
    select p_shop, store_order.order_id, l.n, l.spec->'asset', l.spec->>'sku',
           case when jsonb_typeof(l.spec->'locations') = 'array'
                then array(select jsonb_array_elements_text(l.spec->'locations')) end,
           coalesce((l.spec->>'split')::boolean, false), coalesce((l.spec->>'quantity')::numeric::int, 1)
    from jsonb_array_elements(p_lines) with ordinality l (spec, n);

    insert into onehold.order_events (shop_id, order_id, kind, actor)
    values (p_shop, store_order.order_id, 'placed', p_actor);

    perform onehold.enqueue_job('reserve', order_id::text,
        jsonb_build_object('v', 1, 'shop', p_shop, 'order', order_id), 20);

    -- Money that came before its order.
    perform onehold.enqueue_payments(p_shop, order_id, 'placed');
end
$$;

-- Puts a convert job into the queue for every payment event that waits for this order. The stage is part
-- of the key: a job of an earlier stage may be ending at this very moment, and must not swallow this one.
-- Of a UUID's forms only the hyphenated one is an id, as in uuid_or_null; both cases are spelled out for the
-- index. One that mixes them is found by the housekeeping.
create function onehold.enqueue_payments(p_shop int, p_order uuid, p_stage text) returns void
language sql volatile as $$
    select onehold.enqueue_job('convert', e.shop_id || ':' || e.provider || ':' || e.event_id || ':' || p_stage,
        jsonb_build_object('v', 1, 'shop', p_shop, 'provider', e.provider, 'event', e.event_id), 20)
    from onehold.orders o
    join onehold.payment_events e
      on e.shop_id = o.shop_id and e.state = 'pending' and e.order_ref in (o.id::text, upper(o.id::text), o.reference)
    where o.shop_id = p_shop and o.id = p_order
$$;
