//! Assets that an order holds or has bought, under hands that would take them away (case M2), and the
//! history that a deletion leaves alone (case A11).

use std::time::Duration;

use onehold::allocator::{Outcome, waiting};
use onehold::db::Db;
use onehold::stock::assets::{self, Deleted, Put};
use onehold::stock::description::{self, Description, Status};
use serde_json::{Value, json};

use crate::scene::{SHOP, Scene};

/// What the scene's machines are.
fn machine() -> Description {
    description::check(&json!({"category": "box", "location": "BER", "vendor": "Dell"})).unwrap()
}

fn changed(field: &str, to: Value) -> Description {
    let mut body = json!({"category": "box", "location": "BER", "vendor": "Dell"});
    body[field] = to;
    description::check(&body).unwrap()
}

#[tokio::test]
async fn what_an_order_was_promised_cannot_be_taken_from_it_while_held_or_bound() {
    let scene = Scene::with_machines(1).await;
    let order = scene.reserved("k1").await;
    for bound in [false, true] {
        if bound {
            scene.pay(order, "evt-1").await;
        }
        let before = assets::get(&scene.db, SHOP, "m-01").await.unwrap().unwrap();
        assert_eq!((before.held_by, before.bound_to), if bound { (None, Some(order)) } else { (Some(order), None) });
        for refused in [
            changed("category", json!("other")),
            changed("location", json!("FRA")),
            changed("status", json!("retired")),
        ] {
            assert_eq!(waiting::put_asset(&scene.db, SHOP, "m-01", &refused).await.unwrap(), Put::InUse(order));
        }
        assert_eq!(assets::delete(&scene.db, SHOP, "m-01").await.unwrap(), Deleted::InUse(order));
        assert_eq!(assets::get(&scene.db, SHOP, "m-01").await.unwrap().unwrap(), before);
        assert_eq!(scene.number("select count(*) from onehold.locations where name = 'FRA'").await, 0);

        for allowed in [
            changed("rank", json!(7)),
            changed("attributes", json!({"raid": true})),
            changed("vendor", json!("HP")),
            changed("status", json!("maintenance")),
            machine(),
        ] {
            let put = waiting::put_asset(&scene.db, SHOP, "m-01", &allowed).await.unwrap();
            let Put::Replaced(asset) = put else { panic!("{put:?}") };
            assert_eq!((asset.held_by, asset.bound_to), (before.held_by, before.bound_to));
            assert_eq!((asset.rank, asset.status, &asset.vendor), (allowed.rank, allowed.status, &allowed.vendor));
        }
    }
    scene.verify().await;
}

#[tokio::test]
async fn holds_and_bindings_typed_by_hand_protect_their_asset_too() {
    let scene = Scene::with_machines(2).await;
    scene
        .run(
            "insert into onehold.orders (shop_id, idempotency_key, status) values (1, 'h', 'reserved'), (1, 'b', 'reserved');
             insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
             select 1, o.id, a.id, 'BER', now() + interval '1 hour'
             from onehold.orders o
             join onehold.assets a on a.key = case o.idempotency_key when 'h' then 'm-01' else 'm-02' end;
             update onehold.reservations r set state = 'converted'
             from onehold.orders o where o.id = r.order_id and o.idempotency_key = 'b';
             insert into onehold.bindings (shop_id, reservation_id, asset_id)
             select 1, id, asset_id from onehold.reservations where state = 'converted';",
        )
        .await;
    let held = assets::delete(&scene.db, SHOP, "m-01").await.unwrap();
    let bound = assets::delete(&scene.db, SHOP, "m-02").await.unwrap();
    let (Deleted::InUse(holder), Deleted::InUse(buyer)) = (held, bound) else { panic!("{held:?} {bound:?}") };
    let name = |id: String| format!("select count(*) from onehold.orders where id = '{id}' and idempotency_key = ");
    assert_eq!(scene.number(&(name(holder.to_string()) + "'h'")).await, 1);
    assert_eq!(scene.number(&(name(buyer.to_string()) + "'b'")).await, 1);

    // Once the binding ends and the hold is over, nothing keeps them.
    scene
        .run("update onehold.bindings set ended_at = now(); update onehold.reservations set state = 'cancelled' where state = 'held'")
        .await;
    for key in ["m-01", "m-02"] {
        assert_eq!(assets::delete(&scene.db, SHOP, key).await.unwrap(), Deleted::Done);
    }
}

#[tokio::test]
async fn a_deleted_asset_with_a_history_keeps_it_and_its_key_is_free_again() {
    let scene = Scene::with_machines(2).await;
    let order = scene.reserved("k1").await;
    onehold::orders::cancel(&scene.db, SHOP, order, "api:test", None).await.unwrap();
    assert_eq!(assets::delete(&scene.db, SHOP, "m-01").await.unwrap(), Deleted::Done);
    assert_eq!(assets::delete(&scene.db, SHOP, "m-01").await.unwrap(), Deleted::NoSuchAsset);
    assert_eq!(assets::get(&scene.db, SHOP, "m-01").await.unwrap(), None);
    // Its order still says which one it was.
    assert_eq!(scene.assets(order, "cancelled").await, ["m-01"]);
    let taken_out = "select count(*) from onehold.assets
        where key = 'm-01' and deleted_at is not null and status = 'retired' and owner_id is null";
    assert_eq!(scene.number(taken_out).await, 1);

    // One that nobody ever had is gone for good.
    assert_eq!(assets::delete(&scene.db, SHOP, "m-02").await.unwrap(), Deleted::Done);
    assert_eq!(scene.number("select count(*) from onehold.assets").await, 1);

    let put = waiting::put_asset(&scene.db, SHOP, "m-01", &machine()).await.unwrap();
    assert!(matches!(put, Put::Created(_)), "{put:?}");
    let listed = assets::list(&scene.db, SHOP, &assets::Filter { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(listed.len(), 1);
    // And the new one is sold like any other.
    scene.reserved("k2").await;
}

/// Waits until a session of this test's database waits for a lock.
async fn somebody_waits(db: &Db) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        if waiting > 0 {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "nobody waits for a lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_hold_that_commits_while_a_deletion_waits_for_the_asset_is_seen_by_it() {
    let scene = Scene::with_machines(1).await;
    for retire in [false, true] {
        scene
            .run(
                "update onehold.reservations set state = 'cancelled' where state = 'held';
                 insert into onehold.orders (shop_id, idempotency_key) values (1, gen_random_uuid()::text)",
            )
            .await;
        let mut holder = <sqlx::PgConnection as sqlx::Connection>::connect(&scene.test.url).await.unwrap();
        let order: sqlx::types::Uuid = {
            sqlx::raw_sql(
                "begin;
                 insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
                 select 1, (select id from onehold.orders order by id desc limit 1), id, 'BER', now() + interval '1 hour'
                 from onehold.assets",
            )
            .execute(&mut holder)
            .await
            .unwrap();
            sqlx::query_scalar("select order_id from onehold.reservations where state = 'held'")
                .fetch_one(&mut holder)
                .await
                .unwrap()
        };
        let db = scene.db.clone();
        let other = tokio::spawn(async move {
            if retire {
                let retired = Description { status: Status::Retired, ..machine() };
                assert_eq!(waiting::put_asset(&db, SHOP, "m-01", &retired).await.unwrap(), Put::InUse(order));
            } else {
                assert_eq!(assets::delete(&db, SHOP, "m-01").await.unwrap(), Deleted::InUse(order));
            }
        });
        somebody_waits(&scene.db).await;
        sqlx::raw_sql("commit").execute(&mut holder).await.unwrap();
        other.await.unwrap();
    }
    assert_eq!(scene.number("select count(*) from onehold.assets where status = 'ready'").await, 1);
}

#[tokio::test]
async fn orders_and_deletions_of_the_same_machines_at_once_never_meet_on_one() {
    let scene = Scene::with_machines(8).await;
    let mut orders = Vec::new();
    for n in 0..8 {
        orders.push(scene.place_one(&format!("k{n}")).await);
    }
    let work: Vec<_> = orders.into_iter().enumerate().flat_map(|(n, id)| [(n, Some(id)), (n, None)]).collect();
    let answers = scene
        .at_once(work, |db, (n, order)| async move {
            match order {
                Some(id) => onehold::allocator::run(&db, SHOP, id).await.unwrap() == Outcome::Reserved,
                None => assets::delete(&db, SHOP, &format!("m-0{}", n + 1)).await.unwrap() == Deleted::Done,
            }
        })
        .await;
    let done = i64::try_from(answers.iter().filter(|done| **done).count()).unwrap();
    // Every machine is held, deleted or still there: none is two of these.
    let held = scene.number("select count(*) from onehold.reservations where state = 'held'").await;
    let gone = 8 - scene.number("select count(*) from onehold.assets where deleted_at is null").await;
    assert_eq!(held + gone, done);
    assert!(held + gone <= 8, "held {held}, gone {gone}");
    let lost = "select count(*) from onehold.reservations r
        left join onehold.assets a on a.id = r.asset_id and a.deleted_at is null
        where r.state = 'held' and a.owner_id is distinct from r.id";
    assert_eq!(scene.number(lost).await, 0);
    scene.verify().await;
}

#[tokio::test]
async fn two_puts_of_one_new_key_at_once_make_one_asset() {
    let scene = Scene::with_machines(0).await;
    let answers = scene
        .at_once((0..8).collect(), |db, rank| async move {
            let put = waiting::put_asset(&db, SHOP, "m-01", &Description { rank, ..machine() }).await.unwrap();
            matches!(put, Put::Created(_))
        })
        .await;
    assert_eq!(answers.iter().filter(|created| **created).count(), 1);
    assert_eq!(scene.number("select count(*) from onehold.assets").await, 1);
}
