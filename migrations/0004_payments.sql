-- Why: the inbox of payment events: one row per provider event, kept whatever becomes of it.
-- Previous release: none; this is the first.

create table onehold.payment_events (
    shop_id int not null references onehold.shops (id),
    provider text not null,
    event_id text not null,
    received_at timestamptz not null default clock_timestamp(),
    -- The provider's own name for it, and what it means to an order.
    type text not null,
    effect text not null,
    -- An order's id or reference, as the provider gave it.
    order_ref text,
    payment_id text,
    amount bigint,
    currency text,
    -- The bytes whose signature was verified.
    payload bytea not null,
    -- pending: waits for its order, or for the order's reservation.
    state text not null default 'pending',
    order_id uuid,
    outcome text,
    applied_at timestamptz,
    primary key (shop_id, provider, event_id),
    constraint payment_provider_is_known check (provider in ('stripe', 'standard')),
    constraint effect_is_known check (effect in ('succeeded', 'failed', 'refunded', 'abandoned', 'none')),
    constraint event_state_is_known check (state in ('pending', 'applied', 'ignored')),
    constraint an_applied_event_has_an_order check (state <> 'applied' or order_id is not null)
);

create index payment_events_waiting on onehold.payment_events (shop_id, order_ref) where state = 'pending';
-- What waits, oldest first: how the housekeeping looks for events that lost their job.
create index payment_events_pending on onehold.payment_events (shop_id, received_at) where state = 'pending';
create index payment_events_by_order on onehold.payment_events (shop_id, order_id) where order_id is not null;

-- An order's id, if the text is one: providers send an id or a reference in the same field.
create function onehold.uuid_or_null(p text) returns uuid
language sql immutable parallel safe
as $$
    select case when p ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then p::uuid end
$$;

-- What else was said about one payment: a refund may name its payment and not its order.
create index payment_events_by_payment on onehold.payment_events (shop_id, provider, payment_id)
    where payment_id is not null;
