-- Why: an order's money was one word that each event overwrote, so that what it came to hung on the order in which
-- events arrived. Now each payment of an order is a row: what was heard of it is set, never added, its state moves
-- along one table, and the order's word follows from its payments. Late money can hold anew, and an asset that was
-- withdrawn while held is replaced at the sale.
-- Previous release: survives. What it decides meanwhile stands in the orders, and has no rows here: `verify` names it.

-- What becomes of money that comes after the lapse: the order is reserved anew and sold, or the money is owed back.
alter table onehold.shops
    add column late_money text not null default 'reacquire',
    add constraint late_money_is_known check (late_money in ('reacquire', 'refund'));

alter table onehold.payment_events
    drop constraint effect_is_known,
    add constraint effect_is_known check (effect in
        ('succeeded', 'failed', 'refunded', 'disputed', 'abandoned', 'none'));

create table onehold.payments (
    shop_id int not null,
    order_id uuid not null,
    provider text not null,
    -- The provider's id; empty for all that was said without one.
    payment_id text not null,
    -- none: its success was not heard of yet, only what belongs to it.
    state text not null default 'none',
    -- In the currency's minor unit; null where the provider does not say.
    paid bigint,
    currency text,
    -- All that went back so far, as the provider counts it; and whether it said "all of it" without a sum.
    refunded bigint not null default 0,
    refunded_whole boolean not null default false,
    -- The buyer's bank has taken it up: nothing is given up for this order without a person.
    disputed boolean not null default false,
    heard_at timestamptz not null default clock_timestamp(),
    primary key (shop_id, order_id, provider, payment_id),
    foreign key (shop_id, order_id) references onehold.orders (shop_id, id) on delete cascade,
    constraint money_state_is_known check (state in
        ('none', 'paid', 'late', 'mismatch', 'refund_due', 'refunded')),
    constraint money_is_not_negative check (coalesce(paid, 0) >= 0 and refunded >= 0)
);

-- What the payments of an order come to, in one word.
create function onehold.money_of(p_shop int, p_order uuid) returns text
language plpgsql stable as $$
declare
    v text[] := (select array_agg(distinct state) from onehold.payments where shop_id = p_shop and order_id = p_order);
begin
    -- A sale that is paid for stays paid, whatever came beside it; money that can still become a sale comes next.
    return case
        when 'paid' = any (v) then 'paid'
        when 'mismatch' = any (v) then 'mismatch'
        when 'late' = any (v) then 'late'
        when 'refund_due' = any (v) then 'refund_due'
        when 'refunded' = any (v) then 'refunded'
        else 'none' end;
end
$$;

-- What was decided before payments had rows. An order's word is taken for that of the payment that bore it.
insert into onehold.payments (shop_id, order_id, provider, payment_id, state, paid, currency, refunded, refunded_whole)
select e.shop_id, e.order_id, e.provider, coalesce(e.payment_id, ''),
       case
           when not bool_or(e.effect = 'succeeded') then 'none'
           when (bool_or(e.effect = 'refunded' and e.amount is null)
                 or coalesce(max(e.amount) filter (where e.effect = 'refunded'), -1)
                    >= coalesce(max(e.amount) filter (where e.effect = 'succeeded'), min(o.amount), 0)) then 'refunded'
           when bool_or(e.outcome = 'converted') then 'paid'
           when bool_or(e.outcome = 'mismatch') and min(o.status) = 'reserved' then 'mismatch'
           else 'refund_due' end,
       max(e.amount) filter (where e.effect = 'succeeded'), max(e.currency) filter (where e.effect = 'succeeded'),
       coalesce(max(e.amount) filter (where e.effect = 'refunded'), 0),
       bool_or(e.effect = 'refunded' and e.amount is null)
from onehold.payment_events e
join onehold.orders o on o.shop_id = e.shop_id and o.id = e.order_id
where e.state = 'applied' and e.effect in ('succeeded', 'refunded')
group by e.shop_id, e.order_id, e.provider, coalesce(e.payment_id, '');

update onehold.orders o set payment_state = onehold.money_of(o.shop_id, o.id)
where exists (select from onehold.payments p where p.shop_id = o.shop_id and p.order_id = o.id)
  and o.payment_state <> onehold.money_of(o.shop_id, o.id);

create function onehold.guard_payment() returns trigger
language plpgsql as $$
declare
    -- A row that is new was none a moment ago.
    v_from text := case tg_op when 'INSERT' then 'none' else old.state end;
begin
    -- The one table of transitions, as in src/orders/money.rs.
    if new.state <> v_from and not (v_from, new.state) in (
        ('none', 'paid'), ('none', 'late'), ('none', 'mismatch'), ('none', 'refund_due'),
        ('late', 'paid'), ('late', 'refund_due'),
        ('mismatch', 'paid'), ('mismatch', 'refund_due'), ('mismatch', 'refunded'),
        ('paid', 'refunded'),
        ('refund_due', 'refunded')
    ) then
        raise exception 'a payment in state % cannot become %', v_from, new.state
            using errcode = 'check_violation', constraint = 'money_moves_forward',
                  schema = 'onehold', table = 'payments';
    end if;
    if tg_op = 'UPDATE' and (new.refunded < old.refunded or (old.refunded_whole and not new.refunded_whole)
                             or (old.disputed and not new.disputed)) then
        raise exception 'what was heard of a payment is not unsaid'
            using errcode = 'check_violation', constraint = 'what_was_heard_stays',
                  schema = 'onehold', table = 'payments';
    end if;
    return new;
end
$$;
create trigger money_moves_forward before insert or update on onehold.payments
    for each row execute function onehold.guard_payment();

-- Whatever moves a payment, its order's word follows.
create function onehold.follow_payment() returns trigger
language plpgsql as $$
begin
    update onehold.orders set payment_state = onehold.money_of(new.shop_id, new.order_id)
    where shop_id = new.shop_id and id = new.order_id
      and payment_state <> onehold.money_of(new.shop_id, new.order_id);
    return null;
end
$$;
create trigger orders_follow_new_payments after insert on onehold.payments
    for each row when (new.state <> 'none') execute function onehold.follow_payment();
create trigger orders_follow_their_payments after update of state on onehold.payments
    for each row when (new.state <> old.state) execute function onehold.follow_payment();

-- A part of the price was paid, and the order ends unsold, whoever ends it: the part is owed back, once.
create function onehold.owe_parts_back() returns trigger
language plpgsql as $$
begin
    with owed as (
        update onehold.payments set state = 'refund_due'
        where shop_id = new.shop_id and order_id = new.id and state = 'mismatch'
        returning provider, payment_id, paid, currency, refunded
    )
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    select new.shop_id, new.id, 'refund_due', 'payment:' || provider, jsonb_build_object(
        'payment_id', nullif(payment_id, ''), 'amount', paid, 'currency', currency, 'refunded', refunded,
        'because', new.status)
    from owed;
    return null;
end
$$;
create trigger parts_of_the_price_are_owed_back after update of status on onehold.orders
    for each row when (new.status in ('expired', 'cancelled') and old.payment_state = 'mismatch')
    execute function onehold.owe_parts_back();

-- Holds the stock lines of an order anew, as reservations of a further acquisition. The caller has locked the order.
-- Every pool that a line may draw on is locked, in the one order for everybody, and refilled, so that what is said
-- to be missing is missing. Gives filled, contended (the units are there, and others have them locked) or short,
-- and the line. What was taken before a line fell short goes back with the caller's savepoint.
create function onehold.hold_stock_anew(
    p_shop int, p_order uuid, p_deadline timestamptz, p_acquisition int, out outcome text, out short_line smallint
)
language plpgsql as $$
declare
    v_line record;
    v_place record;
    v_units bigint[];
    v_had int;
    v_left int;
    v_slot smallint;
    v record;
    v_free bigint;
begin
    for v_place in
        select distinct l.sku, s.location from onehold.order_lines l
        join onehold.stock_levels s on s.shop_id = l.shop_id and s.sku = l.sku
            and (l.locations is null or s.location = any (l.locations))
        where l.shop_id = p_shop and l.order_id = p_order and l.sku is not null
        order by l.sku, s.location
    loop
        perform pg_advisory_xact_lock(onehold.pool_lock_key(p_shop, v_place.sku, v_place.location));
        perform onehold.refill_locked(p_shop, v_place.sku, v_place.location);
    end loop;
    for v_line in
        select l.line, l.sku, l.quantity, l.locations, l.split from onehold.order_lines l
        where l.shop_id = p_shop and l.order_id = p_order and l.sku is not null
        order by l.sku, l.line
    loop
        v_left := v_line.quantity;
        v_slot := 0;
        v_free := 0;
        for v_place in
            select s.location from onehold.stock_levels s
            where s.shop_id = p_shop and s.sku = v_line.sku
              and (v_line.locations is null or s.location = any (v_line.locations))
            -- As preferred; where all are equal, where it was held before.
            order by array_position(v_line.locations, s.location),
                     not exists (select from onehold.reservations r
                                 where r.shop_id = p_shop and r.order_id = p_order and r.line = v_line.line
                                   and r.location = s.location),
                     s.location
        loop
            v_units := onehold.take_units(p_shop, v_line.sku, v_place.location, v_left);
            v_had := cardinality(v_units);
            if v_had < v_left then
                -- The pool gave what it could; the rest is what no unit row stands for.
                select * into v from onehold.pool_figures(p_shop, v_line.sku, v_place.location);
                v_had := v_had + least(greatest(v.on_hand - v.held - v.pooled - v_had, 0), v_left - v_had)::int;
                v_free := case when v_line.split then v_free + greatest(v.on_hand - v.held, 0)
                               else greatest(v_free, v.on_hand - v.held) end;
            end if;
            if v_had > 0 and (v_had = v_left or v_line.split) then
                v_slot := v_slot + 1;
                insert into onehold.reservations
                    (shop_id, order_id, line, slot, acquisition, state, sku, location, quantity, expires_at, reason)
                values (p_shop, p_order, v_line.line, v_slot, p_acquisition, 'held', v_line.sku, v_place.location,
                    v_had, p_deadline, jsonb_build_object(
                        'asked', jsonb_build_object('sku', v_line.sku, 'quantity', v_line.quantity,
                                                    'locations', v_line.locations, 'split', v_line.split),
                        'taken', jsonb_build_object('location', v_place.location, 'quantity', v_had,
                                                    'from_pool', cardinality(v_units)),
                        'before', jsonb_build_object('why', 'lapsed')));
                v_left := v_left - v_had;
            elsif cardinality(v_units) > 0 then
                -- Not enough for one location to fill the line: they go back as they were.
                insert into onehold.pool_units (shop_id, sku, location, unit)
                select p_shop, v_line.sku, v_place.location, u from unnest(v_units) u;
            end if;
            exit when v_left = 0;
        end loop;
        if v_left > 0 then
            -- What this line took is held by now, so free is what would be left beside it.
            outcome := case when v_free >= v_left then 'contended' else 'short' end;
            short_line := v_line.line;
            return;
        end if;
    end loop;
    outcome := 'filled';
end
$$;

-- Expires the order whose hold keeps the asset of this key, where that hold has lapsed: what nobody can convert any
-- more is in nobody's way. Passes over an order that somebody is deciding right now. Called before the asset is
-- locked: the order's row comes first in the one order of locks.
create function onehold.clear_lapsed_holder(p_shop int, p_key text) returns void
language plpgsql as $$
declare
    v_order uuid;
begin
    select o.id into v_order
    from onehold.assets a
    join onehold.reservations r on r.shop_id = a.shop_id and r.id = a.owner_id
    join onehold.orders o on o.shop_id = r.shop_id and o.id = r.order_id
    where a.shop_id = p_shop and a.key = p_key and a.deleted_at is null
      and r.state = 'held' and r.expires_at <= clock_timestamp() and o.status = 'reserved'
    for update of o skip locked;
    if v_order is not null then
        perform onehold.expire_orders(p_shop, array[v_order], 'worker');
    end if;
end
$$;

-- As before (0010), and the payment that an order is sold for has its row.
create or replace function onehold.convert_together(p_shop int, p_providers text[], p_events text[]) returns setof int
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
      -- What was said of this payment before anybody named its order goes with it, the careful way.
      and not exists (select from onehold.payment_events mine
                      join onehold.payment_events e
                        on e.shop_id = mine.shop_id and e.provider = mine.provider and e.payment_id = mine.payment_id
                           and e.state = 'ignored' and e.outcome = 'names_no_order'
                      where mine.shop_id = p_shop and mine.provider = p_providers[o.n]
                        and mine.event_id = p_events[o.n])
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
    insert into onehold.payments (shop_id, order_id, provider, payment_id, state, paid, currency)
    select p_shop, o.id, e.provider, coalesce(e.payment_id, ''), 'paid', e.amount, e.currency
    from unnest(v_n, v_orders) as o (n, id)
    join onehold.payment_events e
      on e.shop_id = p_shop and e.provider = p_providers[o.n] and e.event_id = p_events[o.n];
    insert into onehold.order_events (shop_id, order_id, kind, actor, detail)
    select p_shop, o.id, 'converted', 'payment:' || e.provider,
           jsonb_build_object('type', e.type, 'payment_id', e.payment_id, 'amount', e.amount, 'currency', e.currency)
    from unnest(v_n, v_orders) as o (n, id)
    join onehold.payment_events e
      on e.shop_id = p_shop and e.provider = p_providers[o.n] and e.event_id = p_events[o.n];
    return query select unnest(v_n);
end $$;
