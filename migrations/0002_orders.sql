-- Why: what a buyer wants, and the history of what became of it.
-- Previous release: none; this is the first.

create table onehold.orders (
    shop_id int not null references onehold.shops (id),
    id uuid not null default onehold.uuid_v7(),
    idempotency_key text not null,
    reference text,
    status text not null default 'placed',
    payment_state text not null default 'none',
    placed_at timestamptz not null default clock_timestamp(),
    placed_by text not null default 'sql',
    hold_seconds int not null default 900,
    buyer text,
    wait_seconds int not null default 0,
    -- What the order expects to be paid, in the currency's minor unit. Null: any payment will do.
    amount bigint,
    currency text,
    -- Why it was refused, frozen at the decision.
    refusal jsonb,
    -- The request as it was sent: the same key with another body is refused by comparing it.
    body jsonb not null default '{}',
    primary key (shop_id, id),
    constraint one_order_per_key unique (shop_id, idempotency_key),
    constraint order_status_is_known check (status in
        ('placed', 'reserved', 'refused', 'converted', 'expired', 'cancelled', 'released')),
    constraint payment_state_is_known check (payment_state in
        ('none', 'paid', 'late', 'mismatch', 'refund_due', 'refunded')),
    constraint a_refused_order_says_why check (status <> 'refused' or refusal is not null),
    constraint a_price_has_a_currency check ((amount is null) = (currency is null))
);

create index orders_by_reference on onehold.orders (shop_id, reference) where reference is not null;
create index orders_by_status on onehold.orders (shop_id, status, id);

create table onehold.order_lines (
    shop_id int not null,
    order_id uuid not null,
    line smallint not null,
    -- An asset line's requirements, normalised: {"category", "locations", "vendor", "attributes"}.
    asset jsonb,
    -- A stock line's: units of one SKU, from these locations in order of preference (null: from any), and
    -- whether several may fill it together.
    sku text,
    locations text[],
    split boolean not null default false,
    quantity int not null,
    primary key (shop_id, order_id, line),
    foreign key (shop_id, order_id) references onehold.orders (shop_id, id) on delete cascade,
    constraint a_line_wants_an_asset_or_a_sku check ((asset is null) <> (sku is null)),
    constraint quantity_is_positive check (quantity between 1 and 10000)
);

create table onehold.order_events (
    shop_id int not null,
    order_id uuid not null,
    id bigint generated always as identity,
    at timestamptz not null default clock_timestamp(),
    kind text not null,
    -- worker, sweep, api:KEYNAME, payment:PROVIDER or sql.
    actor text not null,
    detail jsonb not null default '{}',
    primary key (shop_id, order_id, id),
    foreign key (shop_id, order_id) references onehold.orders (shop_id, id) on delete cascade
);
