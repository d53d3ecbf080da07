//! Orders that want one asset each, decided as a set: each as if it had come alone.

use onehold::allocator::{Combiner, Kind, Outcome};
use onehold::orders;
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};

/// What a batch answers: `(order, outcome)`, in the order of the orders.
async fn batch(conn: &mut sqlx::PgConnection, orders: &[Uuid]) -> Vec<(Uuid, String)> {
    let mut answers: Vec<(Uuid, String)> = sqlx::query_as("select order_id, outcome from onehold.reserve_batch(1, $1)")
        .bind(orders)
        .fetch_all(conn)
        .await
        .unwrap();
    answers.sort();
    answers
}

async fn reason(scene: &Scene, order: Uuid) -> Value {
    sqlx::query_scalar("select reason from onehold.reservations where order_id = $1")
        .bind(order)
        .fetch_one(scene.db.pool())
        .await
        .unwrap()
}

async fn place_many(scene: &Scene, body: &Value, orders: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for n in 0..orders {
        ids.push(scene.place(&format!("{}-{n}", Uuid::now_v7()), body.clone()).await);
    }
    ids
}

fn wanting(asset: Value) -> Value {
    json!({"lines": [{"asset": asset, "quantity": 1}]})
}

/// The frozen reason does not tell whether an order came alone or in company, whatever it asks for; nor does its
/// history, and a refusal neither.
#[tokio::test]
async fn the_set_decides_and_explains_as_one_order_by_itself_does() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            r#"insert into onehold.assets (shop_id, key, category, location, vendor, rank, attributes, status) values
               (1, 'a', 'box', 'BER', 'Dell', 2, '{"cores": 8, "disk": "ssd"}', 'ready'),
               (1, 'b', 'box', 'FRA', null, 1, '{"cores": 16}', 'ready'),
               (1, 'c', 'box', 'BER', 'HP', 2, '{"cores": 32, "disk": null}', 'ready'),
               (1, 'd', 'box', 'AMS', 'Dell', 0, '{}', 'ready'),
               (1, 'e', 'box', 'AMS', 'Dell', 0, '{"cores": 4}', 'maintenance')"#,
        )
        .await;
    let wishes = [
        json!({"category": "box"}),
        json!({"category": "box", "attributes": {}}),
        json!({"category": "box", "locations": ["BER", "FRA", "BER"]}),
        json!({"category": "box", "locations": ["FRA"]}),
        json!({"category": "box", "vendor": "Dell"}),
        json!({"category": "box", "attributes": {"cores": {"min": 8}}}),
        json!({"category": "box", "attributes": {"disk": {"eq": null}}}),
        json!({"category": "box", "attributes": {"disk": {"in": ["ssd", "nvme"]}}}),
        json!({"category": "box", "vendor": "Sun"}),
        json!({"category": "box", "attributes": {"cores": {"min": 64}}, "locations": ["FRA"]}),
        json!({"category": "none"}),
    ];
    for wish in wishes {
        let body = wanting(wish.clone());
        let [alone, together] = place_many(&scene, &body, 2).await[..] else { unreachable!() };
        let expected = scene.reserve(alone).await;
        let reserved = expected == Outcome::Reserved;
        let frozen = if reserved { reason(&scene, alone).await } else { Value::Null };
        if reserved {
            orders::cancel(&scene.db, SHOP, alone, "api:test", None).await.unwrap();
        }
        let answer = Combiner::start(&scene.db).run(SHOP, together).await.unwrap();
        assert_eq!(answer, expected, "{wish}");
        let of = async |id| orders::events(&scene.db, SHOP, id).await.unwrap().unwrap().swap_remove(1);
        let (one, other) = (of(alone).await, of(together).await);
        assert_eq!((one.kind, one.actor), (other.kind, other.actor), "{wish}");
        let told = |mut detail: Value| {
            detail.as_object_mut().unwrap().remove("deadline");
            detail
        };
        assert_eq!(told(one.detail), told(other.detail), "{wish}");
        if reserved {
            assert_eq!(reason(&scene, together).await, frozen, "{wish}");
            orders::cancel(&scene.db, SHOP, together, "api:test", None).await.unwrap();
        }
    }
    scene.verify().await;
}

/// Each is told what stood behind its asset and how many it passed over, its neighbours not counted.
#[tokio::test]
async fn neighbours_get_the_next_of_the_list_each_and_pass_over_what_a_rival_has_locked() {
    let scene = Scene::with_machines(40).await;
    let ids = place_many(&scene, &wanting(json!({"category": "box"})), 6).await;
    let mut rival = scene.db.pool().acquire().await.unwrap();
    sqlx::query("begin").execute(&mut *rival).await.unwrap();
    let first = batch(&mut rival, &ids[..3]).await;
    assert!(first.iter().all(|(_, outcome)| outcome == "reserved"), "{first:?}");
    // The rival has not committed: nobody waits for him, and nobody gets what he has.
    let mut other = scene.db.pool().acquire().await.unwrap();
    let second = batch(&mut other, &ids[3..]).await;
    assert!(second.iter().all(|(_, outcome)| outcome == "reserved"), "{second:?}");
    sqlx::query("commit").execute(&mut *rival).await.unwrap();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(scene.assets(*id, "held").await, [format!("m-{:02}", n + 1)]);
        let reason = reason(&scene, *id).await;
        let skipped = if n < 3 { 0 } else { 3 };
        assert_eq!((&reason["skipped"], &reason["attempts"]), (&json!(skipped), &json!(1)), "{reason}");
        assert_eq!(reason["candidates"], json!(25));
        assert_eq!(reason["runner_up"]["facts"]["asset"], json!(format!("m-{:02}", n + 2)));
        assert_eq!(reason["runner_up"]["lost_because"], json!("later_key"));
    }
    drop((rival, other));
    scene.verify().await;
}

/// Far more buyers than machines, in as many batches as come: each machine goes once, everyone else is told the
/// truth, and none is told `contended` while all of it is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_buyers_of_like_machines_get_one_each_or_an_honest_no() {
    let scene = Scene::with_machines(50).await;
    let ids = place_many(&scene, &wanting(json!({"category": "box"})), 90).await;
    // Two processes, and neither knows of the other.
    let combiners = [Combiner::start(&scene.db), Combiner::start(&scene.db)];
    let items = ids.iter().enumerate().map(|(n, id)| (combiners[n % 2].clone(), *id)).collect();
    let outcomes = scene.at_once(items, |_, (combiner, id)| async move { combiner.run(SHOP, id).await.unwrap() }).await;
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Reserved).count(), 50, "{outcomes:?}");
    let honest = |o: &&Outcome| matches!(o, Outcome::Refused(r) if r.kind == Kind::Held && r.line == 1);
    assert_eq!(outcomes.iter().filter(honest).count(), 40, "{outcomes:?}");
    for (id, outcome) in ids.iter().zip(&outcomes) {
        let last = if *outcome == Outcome::Reserved { "reserved" } else { "refused" };
        assert_eq!(scene.history(*id).await, ["placed", last]);
        assert_eq!(scene.order(*id).await.status.code(), last);
    }
    assert_eq!(
        scene.number("select count(distinct asset_id) from onehold.reservations where state = 'held'").await,
        50
    );
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 50);
    scene.verify().await;
}

/// Once more: what is decided stays as it is.
#[tokio::test]
async fn a_batch_that_comes_twice_decides_once() {
    let scene = Scene::with_machines(1).await;
    let ids = place_many(&scene, &wanting(json!({"category": "box"})), 2).await;
    let mut conn = scene.db.pool().acquire().await.unwrap();
    let first: Vec<_> = batch(&mut conn, &ids).await.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(first, ["reserved", "refused"]);
    let again: Vec<_> = batch(&mut conn, &ids).await.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(again, ["decided", "decided"]);
    assert_eq!(scene.history(ids[0]).await, ["placed", "reserved"]);
    assert_eq!(scene.history(ids[1]).await, ["placed", "refused"]);
}

/// What only an order by itself can decide is left to it: lapsed holds in the way, time to wait, somebody who waits
/// for the same, machines by the pair, assets and units together.
#[tokio::test]
async fn what_needs_more_than_the_list_is_left_to_the_careful_way() {
    let scene = Scene::with_machines(2).await;
    let lapsed = scene.reserved("lapsed").await;
    let kept = scene.reserved("kept").await;
    scene.lapse(lapsed).await;
    let behind = scene.place_one("behind-a-lapsed-hold").await;
    let pair = scene.place("pair", json!({"lines": [{"asset": {"category": "box"}, "quantity": 2}]})).await;
    let two = scene
        .place("two", json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}, {"asset": {"category": "x"}, "quantity": 1}]}))
        .await;
    let mut conn = scene.db.pool().acquire().await.unwrap();
    assert_eq!(batch(&mut conn, &[behind, pair, two]).await, []);
    let combiner = Combiner::start(&scene.db);
    assert_eq!(combiner.run(SHOP, behind).await.unwrap(), Outcome::Reserved);
    // Now everything is held, and this one has time.
    let mut body = wanting(json!({"category": "box"}));
    body["wait_seconds"] = json!(600);
    let waits = scene.place("waits", body).await;
    assert_eq!(combiner.run(SHOP, waits).await.unwrap(), Outcome::Waiting);
    // Something comes free behind his back, as by an import: it is his before it is another's.
    scene.run("insert into onehold.assets (shop_id, key, category, location) values (1, 'new', 'box', 'BER')").await;
    let later = scene.place_one("later").await;
    assert_eq!(batch(&mut conn, &[later]).await, []);
    assert!(matches!(combiner.run(SHOP, later).await.unwrap(), Outcome::Refused(r) if r.kind == Kind::Held));
    assert_eq!(scene.assets(waits, "held").await, ["new"]);
    assert_eq!(scene.history(kept).await, ["placed", "reserved"]);
    drop(conn);
    scene.verify().await;
}

/// An asset that looks free and is not spoils the set, not its orders: each is decided by itself then.
#[tokio::test]
async fn an_asset_that_only_looks_free_costs_nobody_his_order() {
    let scene = Scene::with_machines(3).await;
    let holder = scene.reserved("holder").await;
    // As damage would have it: its hold stands, and the asset says that nobody owns it.
    let mut damaging = scene.db.pool().acquire().await.unwrap();
    sqlx::raw_sql("set session_replication_role = replica; update onehold.assets set owner_id = null where key = 'm-01'; set session_replication_role = origin")
        .execute(&mut *damaging)
        .await
        .unwrap();
    let ids = place_many(&scene, &wanting(json!({"category": "box"})), 2).await;
    assert_eq!(batch(&mut damaging, &ids).await, []);
    let combiner = Combiner::start(&scene.db);
    for (id, key) in ids.iter().zip(["m-02", "m-03"]) {
        assert_eq!(combiner.run(SHOP, *id).await.unwrap(), Outcome::Reserved);
        assert_eq!(scene.assets(*id, "held").await, [key]);
    }
    assert_eq!(scene.assets(holder, "held").await, ["m-01"]);
}
