//! What the database refuses, whoever types it (invariants 1, 3 and 4), and that the code's table of
//! states is the database's.

use onehold::reservations::state::{STATES, State};

use crate::scene::{Scene, constraint};

const HOLD: &str = "insert into onehold.reservations (shop_id, order_id, line, asset_id, location, expires_at)
    select 1, o.id, 9, a.id, a.location, clock_timestamp() + interval '1 hour'
    from onehold.orders o, onehold.assets a";

#[tokio::test]
async fn no_asset_is_in_two_live_holds() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("k").await;
    assert_eq!(constraint(scene.try_run(HOLD).await), "one_hold_per_asset");
}

#[tokio::test]
async fn no_asset_that_is_sold_can_be_held() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.pay(id, "evt").await;
    assert_eq!(constraint(scene.try_run(HOLD).await), "one_owner_per_asset");
    // Also at the isolation level where a statement does not see what has just been committed.
    let serializable = format!("begin isolation level serializable; {HOLD}; commit");
    assert_eq!(constraint(scene.try_run(&serializable).await), "one_owner_per_asset");
}

#[tokio::test]
async fn no_asset_is_in_two_active_bindings_and_none_is_bound_while_held_by_another() {
    let scene = Scene::with_machines(1).await;
    let sold = scene.reserved("sold").await;
    scene.pay(sold, "evt").await;
    let again = "insert into onehold.bindings (shop_id, reservation_id, asset_id)
                 select shop_id, id, asset_id from onehold.reservations where state = 'converted'";
    assert_eq!(constraint(scene.try_run(again).await), "one_binding_per_reservation");

    // The sale is given back and the machine is held anew: the old sale cannot be bound again beside it.
    scene.run("update onehold.bindings set ended_at = clock_timestamp()").await;
    scene.reserved("next").await;
    scene.run("delete from onehold.bindings").await;
    assert_eq!(constraint(scene.try_run(again).await), "one_owner_per_asset");
}

#[tokio::test]
async fn a_live_hold_cannot_be_bound_before_it_is_converted() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("k").await;
    let bind = "insert into onehold.bindings (shop_id, reservation_id, asset_id)
                select shop_id, id, asset_id from onehold.reservations";
    assert_eq!(constraint(scene.try_run(bind).await), "a_binding_follows_its_hold");
}

#[tokio::test]
async fn a_hold_and_a_binding_that_meet_at_once_are_never_both() {
    let scene = Scene::with_machines(1).await;
    let sold = scene.reserved("sold").await;
    scene.pay(sold, "evt").await;
    scene.run("update onehold.bindings set ended_at = clock_timestamp(); delete from onehold.bindings").await;
    scene.place_one("rival").await;
    // Two sessions, neither of which sees the other's row.
    let bind = "insert into onehold.bindings (shop_id, reservation_id, asset_id)
                select shop_id, id, asset_id from onehold.reservations where state = 'converted'";
    let hold = format!("{HOLD} where o.idempotency_key = 'rival'");
    let answers = scene
        .at_once(vec![bind.to_owned(), hold], |db, statement| async move {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(db.pool()).await.map(|_| ())
        })
        .await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 1));
    assert_eq!(constraint(lost.into_iter().next().unwrap()), "one_owner_per_asset");
}

/// Invariant 3: every pair of states, against the one table in the code.
#[tokio::test]
async fn the_database_allows_exactly_the_transitions_of_the_table() {
    for (from, from_code, next) in STATES {
        for (to, to_code, _) in STATES {
            let scene = Scene::with_machines(1).await;
            scene.reserved("k").await;
            if from != State::Held {
                scene.run(&format!("update onehold.reservations set state = '{from_code}'")).await;
            }
            let moved = scene.try_run(&format!("update onehold.reservations set state = '{to_code}'")).await;
            if next.contains(&to) || from == to {
                moved.unwrap();
            } else {
                assert_eq!(constraint(moved), "only_a_held_reservation_moves", "{from_code} -> {to_code}");
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_state_is_refused() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("k").await;
    let sold = scene.try_run("update onehold.reservations set state = 'sold'").await;
    assert_eq!(constraint(sold), "reservation_state_is_known");
}

/// Invariant 3: the predicates of the partial indexes are the table's `holds`.
#[tokio::test]
async fn the_partial_indexes_hold_exactly_the_states_that_hold() {
    let scene = Scene::with_machines(0).await;
    let predicates: Vec<(String, String)> = sqlx::query_as(
        "select c.relname, pg_get_expr(i.indpred, i.indrelid)
         from pg_index i join pg_class c on c.oid = i.indexrelid
         where i.indrelid = 'onehold.reservations'::regclass and i.indpred is not null
         order by 1",
    )
    .fetch_all(scene.db.pool())
    .await
    .unwrap();
    let holding: Vec<_> = State::all().filter(|s| s.holds()).map(State::code).collect();
    assert_eq!(holding, ["held"]);
    // An index that speaks of states speaks of the holding ones, in these words.
    let of_states: Vec<_> = predicates.iter().filter(|(_, predicate)| predicate.contains("state")).collect();
    assert_eq!(
        of_states.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["holds_by_deadline", "holds_by_pool", "one_hold_per_asset"]
    );
    for (name, predicate) in of_states {
        assert!(predicate.contains("(state = 'held'::text)"), "{name}: {predicate}");
    }
}

/// Invariant 4, typed by hand.
#[tokio::test]
async fn a_lapsed_hold_does_not_convert_even_when_typed_with_a_new_deadline() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.lapse(id).await;
    for typed in [
        "update onehold.reservations set state = 'converted'",
        "update onehold.reservations set state = 'converted', expires_at = clock_timestamp() + interval '1 hour'",
    ] {
        assert_eq!(constraint(scene.try_run(typed).await), "no_convert_after_the_deadline");
    }
}

/// Invariant 4 in two steps, and around the update: each step is refused.
#[tokio::test]
async fn a_lapsed_hold_cannot_be_prolonged_and_a_sale_cannot_be_typed_without_its_hold() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.lapse(id).await;
    let prolonged = "update onehold.reservations set expires_at = clock_timestamp() + interval '1 hour'";
    assert_eq!(constraint(scene.try_run(prolonged).await), "a_lapsed_hold_stays_lapsed");
    onehold::sweep::sweep(&scene.db).await.unwrap();
    let sale = HOLD.replace("asset_id, location, expires_at)", "asset_id, location, expires_at, state)");
    let sale = sale.replace("interval '1 hour'", "interval '1 hour', 'converted'");
    assert_eq!(constraint(scene.try_run(&sale).await), "a_sale_begins_as_a_hold");
}

#[tokio::test]
async fn what_was_promised_and_why_cannot_be_changed_afterwards() {
    let scene = Scene::with_machines(2).await;
    scene.reserved("k").await;
    for typed in [
        "update onehold.reservations set reason = '{}'",
        "update onehold.reservations set asset_id = (select id from onehold.assets where key = 'm-02')",
        "update onehold.reservations set line = 7",
        "update onehold.reservations set location = 'FRA'",
    ] {
        assert_eq!(constraint(scene.try_run(typed).await), "a_reservation_is_frozen");
    }
}

#[tokio::test]
async fn an_owner_cannot_be_typed_and_a_binding_ends_once() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let typed = scene.try_run("update onehold.assets set owner_id = null").await;
    assert_eq!(constraint(typed), "owners_move_with_holds_and_bindings");
    scene.pay(id, "evt").await;
    scene.run("update onehold.bindings set ended_at = clock_timestamp()").await;
    let again = scene.try_run("update onehold.bindings set ended_at = null").await;
    assert_eq!(constraint(again), "a_binding_only_ends");
}

/// Deleting by hand frees what was held, so that the index of sellable assets stays true.
#[tokio::test]
async fn a_hold_or_binding_that_is_deleted_by_hand_frees_its_asset() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("held").await;
    scene.run("delete from onehold.reservations").await;
    let owned = "select count(*) from onehold.assets where owner_id is not null";
    assert_eq!(scene.number(owned).await, 0);
    let sold = scene.reserved("sold").await;
    scene.pay(sold, "evt").await;
    scene.run("delete from onehold.bindings").await;
    assert_eq!(scene.number(owned).await, 0);
}
