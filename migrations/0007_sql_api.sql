-- Why: a web app in any language on the same database places and cancels orders inside its own transaction.
-- The checks are those of the HTTP API; a test sends both the same bodies. Errors carry the API's code at the
-- start of the message, its status in the SQLSTATE (OH422, OH404, OH409, OH400), and the faults as detail.
-- Previous release: none; this is the first.

-- A name on its way in: NFC, without white space at its ends.
create function onehold.clean_name(p text) returns text
language sql immutable parallel safe
as $$
    -- Unicode's White_Space spelled out: what a locale takes for space differs from machine to machine.
    select normalize(regexp_replace(p,
        '^[\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|'
        '[\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$', '', 'g'), nfc)
$$;

-- What is wrong with a text; null where nothing is. A name is 1 to `p_most` characters without controls.
create function onehold.text_fault(p jsonb, p_most int) returns text
language sql immutable parallel safe
as $$
    select case
        when jsonb_typeof(p) <> 'string' then 'must be a string'
        when onehold.clean_name(p #>> '{}') = '' or length(onehold.clean_name(p #>> '{}')) > p_most
            then 'must have 1 to ' || p_most || ' characters'
        when p #>> '{}' ~ '[\u0001-\u001f\u007f-\u009f]' then 'must not contain control characters'
    end
$$;

create function onehold.whole_fault(p jsonb, p_least bigint, p_most bigint) returns text
language sql immutable parallel safe
as $$
    select case
        when jsonb_typeof(p) <> 'number' then 'must be a whole number from ' || p_least || ' to ' || p_most
        when (p #>> '{}')::numeric <> trunc((p #>> '{}')::numeric)
          or (p #>> '{}')::numeric not between p_least and p_most
            then 'must be a whole number from ' || p_least || ' to ' || p_most
    end
$$;

-- The members of an object that nobody knows.
create function onehold.unknown_members(p jsonb, p_at text, p_known text[])
returns table (pointer text, detail text)
language sql immutable parallel safe
as $$
    select p_at || '/' || replace(replace(k, '~', '~0'), '/', '~1'), 'is not a known field'
    from jsonb_object_keys(p) k where k <> all (p_known)
$$;

-- Every fault of the locations of a line or requirement that stands at `p_at`.
create function onehold.location_faults(p jsonb, p_at text) returns table (pointer text, detail text)
language plpgsql immutable parallel safe
as $$
begin
    if not p ? 'locations' then
        return;
    elsif jsonb_typeof(p->'locations') <> 'array' or jsonb_array_length(p->'locations') not between 1 and 100 then
        return query select p_at || '/locations', 'must be an array of 1 to 100 locations';
    else
        return query
            select p_at || '/locations/' || (l.n - 1), onehold.text_fault(l.name, 200)
            from jsonb_array_elements(p->'locations') with ordinality l (name, n)
            where onehold.text_fault(l.name, 200) is not null;
    end if;
end
$$;

-- Every fault of an asset requirement that stands at `p_at` in a body.
create function onehold.requirement_faults(p jsonb, p_at text) returns table (pointer text, detail text)
language plpgsql immutable parallel safe
as $$
begin
    if jsonb_typeof(p) <> 'object' then
        return query select p_at, 'must be an object';
        return;
    end if;
    return query select * from onehold.unknown_members(p, p_at, '{category,locations,vendor,attributes}');
    return query
        select p_at || '/' || f.field, f.fault from (values
            ('category', case when p ? 'category' then onehold.text_fault(p->'category', 200) else 'is required' end),
            ('vendor', onehold.text_fault(nullif(p->'vendor', 'null'), 200)),
            ('attributes', case when p ? 'attributes' and jsonb_typeof(p->'attributes') <> 'object'
                then 'must be an object' end)
        ) f (field, fault) where f.fault is not null;
    return query select * from onehold.location_faults(p, p_at);
    if jsonb_typeof(p->'attributes') <> 'object' then
        return;
    elsif (select count(*) from jsonb_object_keys(p->'attributes')) > 100 then
        return query select p_at || '/attributes', 'must have at most 100 attributes';
    else
        return query
            select p_at || '/attributes/' || replace(replace(a.name, '~', '~0'), '/', '~1'),
                   case when length(a.name) > 200 then 'must have a name of at most 200 characters'
                        else 'must be an object of eq, in (1 to 100 values), min and max' end
            from jsonb_each(p->'attributes') a (name, conditions)
            where length(a.name) > 200 or jsonb_typeof(a.conditions) <> 'object' or a.conditions = '{}'
               or exists (
                   select from jsonb_each(case jsonb_typeof(a.conditions) when 'object' then a.conditions else '{}' end)
                               c (op, bound)
                   where c.op not in ('eq', 'in', 'min', 'max')
                      or (c.op = 'in' and case jsonb_typeof(c.bound)
                              when 'array' then jsonb_array_length(c.bound) not between 1 and 100 else true end)
                      or (c.op in ('min', 'max') and jsonb_typeof(c.bound) not in ('number', 'string')));
    end if;
end
$$;

-- Why a body cannot be kept at all; null where it can. What is stored here is read back by the workers, whose
-- numbers are doubles and whose parser goes 64 levels deep: what they cannot read would be an order that nobody
-- can serve. Strict paths, as lax ones open arrays on the way and would count a level too few.
create function onehold.unreadable(p jsonb) returns text
language sql immutable parallel safe
as $$
    select case
        when octet_length(p::text) > 1048576 then 'must not be larger than 1 MiB'
        when jsonb_path_exists(p, 'strict $.**{64} ? (@.type() == "array" || @.type() == "object")')
            then 'must not nest deeper than 64 levels'
        when jsonb_path_exists(p, 'strict $.** ? (@.type() == "number"
                && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))')
            then 'must not have numbers beyond those of a double'
    end
$$;

-- Every fault of an order's body.
create function onehold.order_faults(p jsonb) returns table (pointer text, detail text)
language plpgsql immutable parallel safe
as $$
begin
    if jsonb_typeof(p) is distinct from 'object' then
        return query select '', 'must be an object';
        return;
    end if;
    if onehold.unreadable(p) is not null then
        return query select '', onehold.unreadable(p);
        return;
    end if;
    return query select * from onehold.unknown_members(
        p, '', '{reference,lines,hold_seconds,payment,metadata,buyer,wait_seconds}');
    return query
        select '/' || f.field, f.fault from (values
            ('lines', case when not p ? 'lines' then 'is required'
                           when jsonb_typeof(p->'lines') <> 'array' or jsonb_array_length(p->'lines') not between 1 and 100
                           then 'must be an array of 1 to 100 lines' end),
            ('reference', onehold.text_fault(nullif(p->'reference', 'null'), 255)),
            ('buyer', onehold.text_fault(nullif(p->'buyer', 'null'), 200)),
            ('hold_seconds', case when p ? 'hold_seconds' then onehold.whole_fault(p->'hold_seconds', 1, 86400) end),
            ('wait_seconds', case when p ? 'wait_seconds' then onehold.whole_fault(p->'wait_seconds', 0, 86400) end),
            ('metadata', case when p ? 'metadata' and jsonb_typeof(p->'metadata') <> 'object' then 'must be an object' end),
            ('payment', case when p ? 'payment' and jsonb_typeof(p->'payment') <> 'object' then 'must be an object' end)
        ) f (field, fault) where f.fault is not null;
    if jsonb_typeof(p->'payment') = 'object' then
        return query select * from onehold.unknown_members(p->'payment', '/payment', '{amount,currency}');
        return query
            select '/payment/' || f.field, f.fault from (values
                ('amount', case when p->'payment' ? 'amount'
                    then onehold.whole_fault(p#>'{payment,amount}', 0, 1000000000000000) else 'is required' end),
                ('currency', case when not coalesce(jsonb_typeof(p#>'{payment,currency}') = 'string'
                    and p#>>'{payment,currency}' ~ '^[A-Z]{3}$', false) then 'must be three capital letters' end)
            ) f (field, fault) where f.fault is not null;
    end if;
    if jsonb_typeof(p->'lines') = 'array' and jsonb_array_length(p->'lines') <= 100 then
        return query
            select f.* from jsonb_array_elements(p->'lines') with ordinality l (line, n),
                            onehold.line_faults(l.line, '/lines/' || (l.n - 1)) f;
    end if;
end
$$;

create function onehold.line_faults(p jsonb, p_at text) returns table (pointer text, detail text)
language plpgsql immutable parallel safe
as $$
begin
    if jsonb_typeof(p) <> 'object' then
        return query select p_at, 'must be an object';
        return;
    end if;
    if (p ? 'asset') = (p ? 'sku') then
        return query select p_at, 'must have either asset or sku';
        return;
    end if;
    if p ? 'asset' then
        return query select * from onehold.unknown_members(p, p_at, '{asset,quantity}');
        return query select * from onehold.requirement_faults(p->'asset', p_at || '/asset');
    else
        return query select * from onehold.unknown_members(p, p_at, '{sku,locations,split,quantity}');
        return query
            select p_at || '/' || f.field, f.fault from (values
                ('sku', onehold.text_fault(p->'sku', 200)),
                ('split', case when p ? 'split' and jsonb_typeof(p->'split') <> 'boolean'
                    then 'must be true or false' end)
            ) f (field, fault) where f.fault is not null;
        return query select * from onehold.location_faults(p, p_at);
    end if;
    if p ? 'quantity' then
        return query
            select p_at || '/quantity', f from onehold.whole_fault(
                p->'quantity', 1, case when p ? 'asset' then 100 else 10000 end) f where f is not null;
    end if;
end
$$;

create function onehold.clean_names(p jsonb) returns jsonb
language sql immutable parallel safe
as $$
    select jsonb_agg(onehold.clean_name(name) order by n) from jsonb_array_elements_text(p) with ordinality x (name, n)
$$;

-- An order's lines with their names cleaned, as store_order wants them.
create function onehold.clean_lines(p jsonb) returns jsonb
language sql immutable parallel safe
as $$
    select jsonb_agg(
        jsonb_build_object('quantity', coalesce((l.line->>'quantity')::numeric::int, 1))
        || case when l.line ? 'sku' then jsonb_build_object(
                'sku', onehold.clean_name(l.line->>'sku'),
                'split', coalesce(l.line->'split', 'false'),
                'locations', onehold.clean_names(l.line->'locations'))
           else jsonb_build_object('asset', jsonb_strip_nulls(jsonb_build_object(
                'category', onehold.clean_name(l.line#>>'{asset,category}'),
                'vendor', onehold.clean_name(l.line#>>'{asset,vendor}'),
                'locations', onehold.clean_names(l.line#>'{asset,locations}')))
                -- Apart: a null inside a condition is a value.
                || case when l.line->'asset' ? 'attributes'
                        then jsonb_build_object('attributes', l.line#>'{asset,attributes}') else '{}' end)
           end
        order by l.n)
    from jsonb_array_elements(p) with ordinality l (line, n)
$$;

-- Places an order in the caller's own transaction: the order and its reserve job exist both or neither.
-- Takes the shop's name, an idempotency key of 1 to 255 printable ASCII characters and the body of
-- POST /v1/orders. Gives the order's id; the same key with the same body gives the same id again.
create function onehold.place_order(shop text, idempotency_key text, body jsonb) returns uuid
language plpgsql as $$
declare
    v_shop int := (select s.id from onehold.shops s where s.name = shop);
    v_faults jsonb;
    v_stored record;
begin
    if v_shop is null then
        raise exception 'not_found: there is no shop %', shop using errcode = 'OH404';
    end if;
    if idempotency_key is null or idempotency_key !~ '^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$' then
        raise exception 'invalid_idempotency_key: 1 to 255 printable ASCII characters' using errcode = 'OH400';
    end if;
    select jsonb_agg(jsonb_build_object('pointer', f.pointer, 'detail', f.detail)) into v_faults
    from onehold.order_faults(body) f;
    if v_faults is not null then
        raise exception 'invalid_body: the body does not fit' using errcode = 'OH422', detail = v_faults::text;
    end if;
    select * into v_stored
    from onehold.store_order(v_shop, idempotency_key, body, onehold.clean_lines(body->'lines'), 'sql');
    if v_stored.outcome = 'key_reused' then
        raise exception 'idempotency_key_reused: the key belongs to an order with another body'
            using errcode = 'OH422';
    end if;
    -- Inside the caller's transaction there is no "after the commit": the server sends it then.
    perform pg_notify('onehold_jobs', 'reserve');
    return v_stored.order_id;
end
$$;

-- Cancels a placed or reserved order in the caller's own transaction. A second time changes nothing.
create function onehold.cancel_order(shop text, id uuid, reason text) returns void
language plpgsql as $$
declare
    v_shop int := (select s.id from onehold.shops s where s.name = shop);
begin
    -- Lines are allowed, as over HTTP.
    if length(reason) not between 1 and 1000 then
        raise exception 'invalid_body: the body does not fit' using errcode = 'OH422',
            detail = '[{"pointer": "/reason", "detail": "must have 1 to 1000 characters"}]';
    end if;
    case onehold.end_by_cancelling(v_shop, cancel_order.id, 'sql', reason)
        when 'no_such_order' then
            raise exception 'not_found: the shop has no order %', cancel_order.id using errcode = 'OH404';
        when 'already_converted' then
            raise exception 'already_converted: the order is sold; release it instead' using errcode = 'OH409';
        else
            perform pg_notify('onehold_orders', cancel_order.id::text);
    end case;
end
$$;
