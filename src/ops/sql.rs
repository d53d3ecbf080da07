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
        says: "every order gets an answer: none is placed for five minutes",
        counted_by: "select count(*), count(*) filter (where placed_at < clock_timestamp() - interval '5 minutes')
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
];

/// Runs one invariant's statement. Not checked at build time: the statements are data, so that adding an
/// invariant is adding a row.
pub(super) async fn count(pool: &PgPool, counted_by: &'static str) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(counted_by).fetch_one(pool).await
}
