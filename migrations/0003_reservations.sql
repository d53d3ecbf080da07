-- Why: holds and sales, and the guards that keep "one asset, one owner", "held is the only state that
-- holds" and "a lapsed hold does not convert" true against any code and any hand-typed SQL.
-- Previous release: none; this is the first.

create table onehold.reservations (
    shop_id int not null,
    id uuid not null default onehold.uuid_v7(),
    order_id uuid not null,
    line smallint not null default 1,
    -- The n-th thing of the line, from 1.
    slot smallint not null default 1,
    -- Counts up when a lapsed order is reserved anew.
    acquisition smallint not null default 1,
    state text not null default 'held',
    asset_id uuid,
    sku text,
    location text not null,
    quantity int not null default 1,
    -- Why this one: frozen at the decision, never changed.
    reason jsonb not null default '{}',
    held_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    primary key (shop_id, id),
    foreign key (shop_id, order_id) references onehold.orders (shop_id, id),
    foreign key (shop_id, asset_id) references onehold.assets (shop_id, id),
    constraint one_reservation_per_slot unique (shop_id, order_id, line, slot, acquisition),
    constraint reservation_state_is_known check (state in ('held', 'converted', 'expired', 'cancelled')),
    constraint an_asset_or_a_sku check ((asset_id is null) <> (sku is null)),
    constraint an_asset_is_one check (asset_id is null or quantity = 1),
    constraint reserved_quantity_is_positive check (quantity > 0)
);

create unique index one_hold_per_asset on onehold.reservations (shop_id, asset_id) where state = 'held';
-- An asset's history: what stands in the way of its removal.
create index reservations_by_asset on onehold.reservations (shop_id, asset_id) where asset_id is not null;
create index holds_by_deadline on onehold.reservations (shop_id, expires_at) where state = 'held';

create table onehold.bindings (
    shop_id int not null,
    id uuid not null default onehold.uuid_v7(),
    reservation_id uuid not null,
    asset_id uuid not null,
    bound_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    primary key (shop_id, id),
    foreign key (shop_id, reservation_id) references onehold.reservations (shop_id, id),
    foreign key (shop_id, asset_id) references onehold.assets (shop_id, id),
    constraint one_binding_per_reservation unique (shop_id, reservation_id)
);

create index bindings_by_asset on onehold.bindings (shop_id, asset_id);
create unique index one_active_binding_per_asset on onehold.bindings (shop_id, asset_id) where ended_at is null;

-- Gives the asset an owner, or says that it has another. The update is a compare-and-set on one row, so
-- it holds at every isolation level: a hold and a binding that meet, meet here. The error names its
-- constraint as an index would, because that is how callers tell "taken" from "broken".
create function onehold.take_asset(p_shop int, p_asset uuid, p_owner uuid) returns void
language plpgsql as $$
begin
    update onehold.assets set owner_id = p_owner
    where shop_id = p_shop and id = p_asset and (owner_id is null or owner_id = p_owner);
    if not found then
        raise exception 'asset % is held or sold already', p_asset
            using errcode = 'unique_violation', constraint = 'one_owner_per_asset',
                  schema = 'onehold', table = 'assets';
    end if;
end
$$;

create function onehold.free_asset(p_shop int, p_asset uuid, p_owner uuid) returns void
language sql as $$
    update onehold.assets set owner_id = null
    where shop_id = p_shop and id = p_asset and owner_id = p_owner
$$;

create function onehold.guard_reservation() returns trigger
language plpgsql as $$
begin
    if new.state <> old.state then
        -- The one table of transitions: held -> converted | expired | cancelled.
        if old.state <> 'held' then
            raise exception 'a reservation in state % cannot become %', old.state, new.state
                using errcode = 'check_violation', constraint = 'only_a_held_reservation_moves',
                      schema = 'onehold', table = 'reservations';
        end if;
        -- Judged here, by the database's clock, after every lock is held.
        if new.state = 'converted' and clock_timestamp() >= old.expires_at then
            raise exception 'the hold lapsed at %', old.expires_at
                using errcode = 'check_violation', constraint = 'no_convert_after_the_deadline',
                      schema = 'onehold', table = 'reservations';
        end if;
    end if;
    -- A deadline that has passed stays passed.
    if clock_timestamp() >= old.expires_at and new.expires_at > clock_timestamp() then
        raise exception 'the hold lapsed at % and cannot be prolonged', old.expires_at
            using errcode = 'check_violation', constraint = 'a_lapsed_hold_stays_lapsed',
                  schema = 'onehold', table = 'reservations';
    end if;
    if (new.shop_id, new.id, new.order_id, new.line, new.slot, new.acquisition, new.location, new.quantity)
           is distinct from
       (old.shop_id, old.id, old.order_id, old.line, old.slot, old.acquisition, old.location, old.quantity)
       or new.asset_id is distinct from old.asset_id
       or new.sku is distinct from old.sku
       or new.reason is distinct from old.reason then
        raise exception 'a reservation keeps what it promised and why'
            using errcode = 'check_violation', constraint = 'a_reservation_is_frozen',
                  schema = 'onehold', table = 'reservations';
    end if;
    return new;
end
$$;

create trigger reservations_move_forward before update on onehold.reservations
    for each row execute function onehold.guard_reservation();

create function onehold.follow_reservation() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        if new.state = 'converted' then
            raise exception 'a sale begins as a hold'
                using errcode = 'check_violation', constraint = 'a_sale_begins_as_a_hold',
                      schema = 'onehold', table = 'reservations';
        end if;
        if new.state = 'held' then
            perform onehold.take_asset(new.shop_id, new.asset_id, new.id);
        end if;
    elsif tg_op = 'DELETE' then
        if old.state = 'held' then
            perform onehold.free_asset(old.shop_id, old.asset_id, old.id);
        end if;
    elsif old.state = 'held' and new.state in ('expired', 'cancelled') then
        -- A converted hold keeps its asset: there is no free instant between hold and binding.
        perform onehold.free_asset(old.shop_id, old.asset_id, old.id);
    end if;
    return null;
end
$$;

create trigger new_holds_take_their_asset after insert on onehold.reservations
    for each row when (new.asset_id is not null) execute function onehold.follow_reservation();
create trigger ended_holds_free_their_asset after update of state on onehold.reservations
    for each row when (new.asset_id is not null) execute function onehold.follow_reservation();
create trigger deleted_holds_free_their_asset after delete on onehold.reservations
    for each row when (old.asset_id is not null) execute function onehold.follow_reservation();

create function onehold.guard_binding() returns trigger
language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if old.ended_at is null then
            perform onehold.free_asset(old.shop_id, old.asset_id, old.reservation_id);
        end if;
        return null;
    end if;
    if tg_op = 'UPDATE' then
        if (new.shop_id, new.id, new.reservation_id, new.asset_id, new.bound_at)
               is distinct from (old.shop_id, old.id, old.reservation_id, old.asset_id, old.bound_at)
           or (old.ended_at is not null and new.ended_at is distinct from old.ended_at) then
            raise exception 'a binding can only be ended, and once'
                using errcode = 'check_violation', constraint = 'a_binding_only_ends',
                      schema = 'onehold', table = 'bindings';
        end if;
        if old.ended_at is null and new.ended_at is not null then
            perform onehold.free_asset(old.shop_id, old.asset_id, old.reservation_id);
        end if;
        return null;
    end if;
    -- A sale is a converted reservation of this very asset; a live hold beside it would be two owners.
    perform from onehold.reservations
    where shop_id = new.shop_id and id = new.reservation_id and asset_id = new.asset_id and state = 'converted';
    if not found then
        raise exception 'reservation % is not a converted hold of asset %', new.reservation_id, new.asset_id
            using errcode = 'check_violation', constraint = 'a_binding_follows_its_hold',
                  schema = 'onehold', table = 'bindings';
    end if;
    if new.ended_at is null then
        perform onehold.take_asset(new.shop_id, new.asset_id, new.reservation_id);
    end if;
    return null;
end
$$;

create trigger bindings_own_their_asset after insert or update or delete on onehold.bindings
    for each row execute function onehold.guard_binding();

create function onehold.guard_owner() returns trigger
language plpgsql as $$
begin
    -- Depth 1 is this trigger itself: the update was typed, not made by a reservation or binding.
    if pg_trigger_depth() < 2 then
        raise exception 'the owner of an asset moves with its reservations and bindings only'
            using errcode = 'check_violation', constraint = 'owners_move_with_holds_and_bindings',
                  schema = 'onehold', table = 'assets';
    end if;
    return new;
end
$$;

create trigger owners_move_with_holds_and_bindings before update of owner_id on onehold.assets
    for each row when (new.owner_id is distinct from old.owner_id)
    execute function onehold.guard_owner();
