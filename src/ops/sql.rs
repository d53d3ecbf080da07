//! The statements behind `onehold verify`.

use sqlx::PgPool;

/// An invariant in words, and the statement that gives (rows looked at, rows that break it).
pub(super) struct Invariant {
    pub(super) says: &'static str,
    pub(super) counted_by: &'static str,
}

/// What must always hold. A statement here reads across shops: it is an operator's question.
pub(super) const INVARIANTS: &[Invariant] = &[
    Invariant {
        says: "no asset is in two live holds",
        counted_by: "select count(*), count(*) filter (where holds > 1) from (
                         select count(*) as holds from onehold.reservations
                         where state = 'held' and asset_id is not null group by shop_id, asset_id) h",
    },
    Invariant {
        says: "no asset is in two active bindings",
        counted_by: "select count(*), count(*) filter (where sales > 1) from (
                         select count(*) as sales from onehold.bindings
                         where ended_at is null group by shop_id, asset_id) b",
    },
    Invariant {
        says: "no asset is both held and bound",
        counted_by: "select count(*), count(b.id) from onehold.reservations r
                     left join onehold.bindings b
                       on b.shop_id = r.shop_id and b.asset_id = r.asset_id and b.ended_at is null
                     where r.state = 'held' and r.asset_id is not null",
    },
    Invariant {
        says: "every asset's owner is its live hold or its active binding, and every one of those owns its asset",
        counted_by:
            "select count(*), count(*) filter (where a.owner_id is distinct from coalesce(b.reservation_id, r.id))
                     from onehold.assets a
                     left join onehold.reservations r
                       on r.shop_id = a.shop_id and r.asset_id = a.id and r.state = 'held'
                     left join onehold.bindings b
                       on b.shop_id = a.shop_id and b.asset_id = a.id and b.ended_at is null",
    },
    Invariant {
        says: "every converted hold of an asset has its binding",
        counted_by: "select count(*), count(*) filter (where b.id is null) from onehold.reservations r
                     left join onehold.bindings b on b.shop_id = r.shop_id and b.reservation_id = r.id
                     where r.state = 'converted' and r.asset_id is not null",
    },
    Invariant {
        says: "every binding belongs to a converted hold of the same asset",
        counted_by: "select count(*), count(*) filter (where r.id is null) from onehold.bindings b
                     left join onehold.reservations r
                       on r.shop_id = b.shop_id and r.id = b.reservation_id and r.asset_id = b.asset_id
                      and r.state = 'converted'",
    },
    Invariant {
        says: "a reserved order holds everything it asked for, and no other order holds anything",
        counted_by: "select count(*), count(*) filter (where case o.status
                             when 'reserved' then r.held is distinct from l.wanted else coalesce(r.held, 0) > 0 end)
                     from onehold.orders o
                     left join lateral (
                         select sum(quantity)::bigint as wanted from onehold.order_lines l
                         where l.shop_id = o.shop_id and l.order_id = o.id) l on true
                     left join lateral (
                         select sum(quantity)::bigint as held from onehold.reservations r
                         where r.shop_id = o.shop_id and r.order_id = o.id and r.state = 'held') r on true",
    },
    Invariant {
        says: "a converted order has everything it asked for",
        counted_by: "select count(*), count(*) filter (where r.sold is distinct from l.wanted)
                     from onehold.orders o
                     left join lateral (
                         select sum(quantity)::bigint as wanted from onehold.order_lines l
                         where l.shop_id = o.shop_id and l.order_id = o.id) l on true
                     left join lateral (
                         select sum(quantity)::bigint as sold from onehold.reservations r
                         where r.shop_id = o.shop_id and r.order_id = o.id and r.state = 'converted') r on true
                     where o.status = 'converted'",
    },
    Invariant {
        says: "every order's history begins with its placing and tells the status it stands in",
        counted_by: "select count(*), count(*) filter (where not (e.placed and e.told)) from onehold.orders o
                     left join lateral (
                         select coalesce(bool_or(kind = 'placed'), false) as placed,
                                coalesce(bool_or(kind = o.status), false) as told
                         from onehold.order_events e where e.shop_id = o.shop_id and e.order_id = o.id) e on true",
    },
    Invariant {
        says: "money was taken for nothing unsold: a paid order is converted or was released",
        counted_by: "select count(*), count(*) filter (where status not in ('converted', 'released'))
                     from onehold.orders where payment_state = 'paid'",
    },
    Invariant {
        says: "every order gets an answer: none is placed for five minutes, or waits five minutes beyond its time",
        counted_by: "select count(*), count(*) filter (
                         where coalesce(waiting_until, placed_at) < clock_timestamp() - interval '5 minutes')
                     from onehold.orders where status = 'placed'",
    },
    Invariant {
        says: "every payment whose order is decided is applied within five minutes",
        counted_by: "select count(*), count(*) filter (where e.received_at < clock_timestamp() - interval '5 minutes'
                         and exists (select from onehold.orders o
                             where o.shop_id = e.shop_id and o.status <> 'placed'
                               and (o.reference = e.order_ref or o.id = onehold.uuid_or_null(e.order_ref))))
                     from onehold.payment_events e where e.state = 'pending'",
    },
    Invariant {
        says: "every unit is accounted for: on hand = held + pooled + a rest, never negative but for an open shortfall",
        counted_by: "select count(*), count(*) filter (where f.on_hand - f.held - f.pooled + coalesce(s.units, 0) < 0)
                     from (select shop_id, sku, location from onehold.stock_levels
                           union select shop_id, sku, location from onehold.pool_units
                           union select shop_id, sku, location from onehold.reservations
                                 where state = 'held' and sku is not null) p
                     cross join lateral onehold.pool_figures(p.shop_id, p.sku, p.location) f
                     left join onehold.stock_shortfalls s
                       on s.shop_id = p.shop_id and s.sku = p.sku and s.location = p.location
                      and s.cleared_at is null",
    },
    Invariant {
        says: "no more is held than is on hand, but for an open shortfall",
        counted_by: "select count(*), count(*) filter (where h.held > 0 and h.held > f.on_hand + coalesce(s.units, 0))
                     from (select shop_id, sku, location, sum(quantity) as held from onehold.reservations
                           where state = 'held' and sku is not null group by shop_id, sku, location) h
                     cross join lateral onehold.pool_figures(h.shop_id, h.sku, h.location) f
                     left join onehold.stock_shortfalls s
                       on s.shop_id = h.shop_id and s.sku = h.sku and s.location = h.location
                      and s.cleared_at is null",
    },
    Invariant {
        says: "the ledger's sum is what was rolled up and what is not yet",
        counted_by: "select count(*), count(*) filter (where coalesce(m.sum, 0)
                             is distinct from coalesce(l.rolled, 0) + coalesce(d.sum, 0))
                     from (select shop_id, sku, location, sum(delta) as sum from onehold.stock_movements
                           group by shop_id, sku, location) m
                     full join onehold.stock_levels l using (shop_id, sku, location)
                     full join (select shop_id, sku, location, sum(delta) as sum from onehold.stock_deltas
                                group by shop_id, sku, location) d using (shop_id, sku, location)",
    },
    Invariant {
        says: "what is held is what was rolled up and what is not yet",
        counted_by: "select count(*), count(*) filter (where coalesce(r.sum, 0)
                             is distinct from coalesce(l.held, 0) + coalesce(d.sum, 0))
                     from (select shop_id, sku, location, sum(quantity) as sum from onehold.reservations
                           where state = 'held' and sku is not null group by shop_id, sku, location) r
                     full join onehold.stock_levels l using (shop_id, sku, location)
                     full join (select shop_id, sku, location, sum(held) as sum from onehold.stock_deltas
                                group by shop_id, sku, location) d using (shop_id, sku, location)",
    },
    Invariant {
        says: "no pool has more unit rows than its bound",
        counted_by: "select count(*), count(*) filter (where p.units > s.pool_bound)
                     from (select shop_id, count(*) as units from onehold.pool_units
                           group by shop_id, sku, location) p
                     join onehold.shops s on s.id = p.shop_id",
    },
    Invariant {
        says: "every converted hold of stock is sold in the ledger, as one movement",
        counted_by: "select count(*), count(*) filter (where m.id is null) from onehold.reservations r
                     left join onehold.stock_movements m
                       on m.shop_id = r.shop_id and m.reference = 'onehold:sale:' || r.id and m.kind = 'sale'
                      and m.sku = r.sku and m.location = r.location and m.delta = -r.quantity
                     where r.state = 'converted' and r.sku is not null",
    },
    Invariant {
        says: "every sale in the ledger is a converted hold's, and every release that of a released order",
        counted_by: "select count(*), count(*) filter (where r.id is null or (m.kind = 'release' and o.id is null))
                     from onehold.stock_movements m
                     left join onehold.reservations r
                       on r.shop_id = m.shop_id and m.reference = 'onehold:' || m.kind || ':' || r.id
                      and r.id = onehold.uuid_or_null(split_part(m.reference, ':', 3))
                      and r.state = 'converted' and r.sku = m.sku and r.location = m.location
                     left join onehold.orders o
                       on o.shop_id = r.shop_id and o.id = r.order_id and o.status = 'released'
                     where m.kind in ('sale', 'release')",
    },
    Invariant {
        says: "the units of a released order came back once",
        counted_by: "select count(*), count(*) filter (where m.id is null) from onehold.orders o
                     join onehold.reservations r
                       on r.shop_id = o.shop_id and r.order_id = o.id and r.state = 'converted' and r.sku is not null
                     left join onehold.stock_movements m
                       on m.shop_id = r.shop_id and m.reference = 'onehold:release:' || r.id and m.kind = 'release'
                      and m.sku = r.sku and m.location = r.location and m.delta = r.quantity
                     where o.status = 'released'",
    },
    // An endpoint is seen by the transactions that begin after its own has committed, so the minute after it was added
    // or before it was disabled is nobody's to judge.
    Invariant {
        says: "every decision of a shop that had an endpoint has exactly one outbound event",
        counted_by: "select count(*), count(*) filter (where v.events <> 1)
                     from onehold.order_events h
                     cross join lateral (
                         select count(*) as events from onehold.outbound_events v
                         where v.shop_id = h.shop_id and v.order_id = h.order_id and v.history_id = h.id
                           and v.type = 'order.' || h.kind) v
                     where h.kind in ('reserved', 'refused', 'converted', 'expired', 'cancelled', 'released',
                                      'refund_due')
                       and exists (select from onehold.endpoints p
                                   where p.shop_id = h.shop_id and p.created_at < h.at - interval '1 minute'
                                     and coalesce(p.disabled_at > h.at + interval '1 minute', true))",
    },
    Invariant {
        says: "every outbound event is of a decision, and is delivered or to be delivered where there was an endpoint",
        counted_by: "select count(*), count(*) filter (where
                         (v.order_id is not null and not exists (
                             select from onehold.order_events h
                             where h.shop_id = v.shop_id and h.order_id = v.order_id and h.id = v.history_id
                               and v.type = 'order.' || h.kind))
                         or exists (
                             select from onehold.endpoints p
                             where p.shop_id = v.shop_id and p.created_at < v.at - interval '1 minute'
                               and coalesce(p.disabled_at > v.at + interval '1 minute', true)
                               and not exists (select from onehold.deliveries d
                                               where d.shop_id = v.shop_id and d.endpoint_id = p.id
                                                 and d.event_id = v.id)))
                     from onehold.outbound_events v",
    },
];

/// Runs one invariant's statement. Not checked at build time: the statements are data, so that adding an
/// invariant is adding a row.
pub(super) async fn count(pool: &PgPool, counted_by: &'static str) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(counted_by).fetch_one(pool).await
}
