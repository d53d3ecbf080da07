-- Why: the ground everything stands on: who sells (shops), who may ask (API keys) and what exists
-- once (assets). Every key leads with the shop, so that one shop's rows can live on one shard.
-- Previous release: none; this is the first.

create schema if not exists onehold;

-- A UUIDv7 (RFC 9562, 5.7): 48 bits of Unix milliseconds, then randomness, so that rows written
-- together lie together. PostgreSQL brings its own only from version 18 on.
create function onehold.uuid_v7() returns uuid
language sql volatile parallel safe
as $$
    select encode(
        set_bit(
            set_bit(
                overlay(
                    uuid_send(gen_random_uuid())
                    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                    from 1 for 6
                ),
                52, 1),
            53, 1),
        'hex')::uuid
$$;

create table onehold.shops (
    id int generated always as identity primary key,
    name text not null,
    -- How long a hold lasts when the order does not say, in seconds.
    hold_seconds int not null default 900,
    -- To how many times its first length a hold may be prolonged, so that nobody keeps stock for ever.
    most_hold_factor int not null default 4,
    created_at timestamptz not null default now(),
    constraint one_shop_per_name unique (name),
    -- The name stands in API keys and URLs.
    constraint shop_name_is_simple check (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    constraint hold_lasts_at_most_a_day check (hold_seconds between 1 and 86400),
    constraint most_hold_factor_is_sane check (most_hold_factor between 1 and 100)
);

insert into onehold.shops (name) values ('main');

create table onehold.api_keys (
    shop_id int not null references onehold.shops (id),
    id uuid not null default onehold.uuid_v7(),
    name text not null,
    -- SHA-256 of the key; the key itself is 256 random bits, shown once and never stored.
    hash bytea not null,
    scopes text[] not null,
    created_at timestamptz not null default now(),
    revoked_at timestamptz,
    primary key (shop_id, id),
    constraint one_key_per_hash unique (shop_id, hash),
    constraint scopes_are_known check (scopes <@ array['orders', 'stock', 'ops'] and cardinality(scopes) > 0)
);

create unique index one_live_key_per_name on onehold.api_keys (shop_id, name) where revoked_at is null;

-- Webhook secrets of shops other than `main`, whose come from the environment. HMAC needs the secret
-- itself, so it cannot be hashed.
create table onehold.webhook_secrets (
    shop_id int not null references onehold.shops (id),
    provider text not null,
    id uuid not null default onehold.uuid_v7(),
    secret text not null,
    created_at timestamptz not null default now(),
    -- After this instant the secret is no longer accepted: how rotation ends. Null: valid.
    valid_until timestamptz,
    primary key (shop_id, provider, id),
    constraint provider_is_known check (provider in ('stripe', 'standard'))
);

create table onehold.locations (
    shop_id int not null references onehold.shops (id),
    name text not null,
    first_seen_at timestamptz not null default now(),
    primary key (shop_id, name)
);

create table onehold.assets (
    shop_id int not null references onehold.shops (id),
    id uuid not null default onehold.uuid_v7(),
    key text not null,
    category text not null,
    location text not null,
    vendor text,
    status text not null default 'ready',
    attributes jsonb not null default '{}',
    -- Lower is allocated first, then key order.
    rank int not null default 0,
    available_from timestamptz,
    -- The reservation that holds this asset or has sold it. Moved by the triggers on reservations and
    -- bindings alone (0003); it keeps the index of sellable assets in step.
    owner_id uuid,
    -- An asset with a history is not removed but taken out; its key may be used again.
    deleted_at timestamptz,
    updated_at timestamptz not null default now(),
    primary key (shop_id, id),
    constraint asset_status_is_known check (status in ('ready', 'maintenance', 'retired')),
    constraint attributes_are_an_object check (jsonb_typeof(attributes) = 'object'),
    constraint a_deleted_asset_is_retired check (deleted_at is null or status = 'retired')
);

create unique index one_asset_per_key on onehold.assets (shop_id, key) where deleted_at is null;

-- What the allocator lists: sellable assets only, in the order in which they are sold. With 95 % sold
-- and thousands held, neither stands in the way of the next order.
create index sellable_assets_by_rank on onehold.assets (shop_id, category, rank, key)
    where status = 'ready' and owner_id is null;
create index sellable_assets_by_location on onehold.assets (shop_id, category, location, rank, key)
    where status = 'ready' and owner_id is null;
-- What a refusal counts, and what the list of assets reads.
create index assets_by_category on onehold.assets (shop_id, category, location) where deleted_at is null;

create function onehold.remember_locations() returns trigger
language plpgsql as $$
begin
    insert into onehold.locations (shop_id, name)
    select distinct shop_id, location from fresh
    on conflict do nothing;
    return null;
end
$$;

create trigger assets_name_their_locations after insert on onehold.assets
    referencing new table as fresh
    for each statement execute function onehold.remember_locations();

-- Whether an asset's attributes meet the conditions {"name": {"eq"|"in"|"min"|"max": value}}. All must
-- hold; a missing attribute meets none; min and max compare values of one JSON type.
create function onehold.attributes_match(have jsonb, want jsonb) returns boolean
language sql immutable parallel safe
as $$
    select not exists (
        select from jsonb_each(want) w (name, conditions), jsonb_each(w.conditions) c (op, bound)
        where not coalesce(
            case c.op
                when 'eq' then have->w.name = c.bound
                when 'in' then exists (select from jsonb_array_elements(c.bound) e where e = have->w.name)
                when 'min' then jsonb_typeof(have->w.name) = jsonb_typeof(c.bound) and have->w.name >= c.bound
                when 'max' then jsonb_typeof(have->w.name) = jsonb_typeof(c.bound) and have->w.name <= c.bound
            end,
            false)
    )
$$;
