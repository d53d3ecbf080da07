//! The scenes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::future::{BoxFuture, try_join_all};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::process::Child;

use super::client::{Client, asset, one, text};
use super::receiver::receive;
use super::{Stage, money, sql};
use crate::courier::endpoints::{self, Added};

type Playing<'a> = BoxFuture<'a, anyhow::Result<String>>;

/// A scene: what is done, what must be true, and how it is played.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) expected: &'static str,
    act: for<'a> fn(&'a Stage, &'a Client, &'a mut Child) -> Playing<'a>,
}

impl Scene {
    pub(super) fn play<'a>(&self, stage: &'a Stage, client: &'a Client, worker: &'a mut Child) -> Playing<'a> {
        (self.act)(stage, client, worker)
    }
}

pub(super) const ALL: &[Scene] = &[
    Scene {
        name: "8 orders at once on 3 machines",
        expected: "3 reserved on 3 machines, 5 refused as contended or held",
        act: |_, client, _| Box::pin(eight_on_three(client)),
    },
    Scene {
        name: "2 orders at once on 1 machine",
        expected: "1 reserved on 1 machines, 1 refused as contended or held",
        act: |_, client, _| Box::pin(two_on_one(client)),
    },
    Scene {
        name: "one key sent 5 times at once",
        expected: "1 order, 1 reservation",
        act: |_, client, _| Box::pin(one_key_five_times(client)),
    },
    Scene {
        name: "a paid hold becomes a sale",
        expected: "converted, paid: placed → reserved → converted",
        act: |_, client, _| Box::pin(convert(client)),
    },
    Scene {
        name: "a hold lapses, and its machine is still free when the money comes",
        expected: "converted, paid: placed → reserved → expired → payment_late → reacquired → converted; the same machine",
        act: |_, client, _| Box::pin(money::late_and_reacquired(client)),
    },
    Scene {
        name: "a hold lapses, the next order takes the machine, then the money comes",
        expected: "expired, refund_due: placed → reserved → expired → payment_late → refund_due; the next is reserved",
        act: |_, client, _| Box::pin(money::late_and_refund_due(client)),
    },
    Scene {
        name: "a wrong amount is paid, and then the rest",
        expected: "reserved with mismatch; after the rest converted, paid: placed → reserved → payment_mismatch → converted",
        act: |_, client, _| Box::pin(money::wrong_amount(client)),
    },
    Scene {
        name: "a cancelled order's machine goes to the next",
        expected: "placed → reserved → cancelled; the next has the same machine",
        act: |_, client, _| Box::pin(cancel(client)),
    },
    Scene {
        name: "two orders wait for a machine that comes free",
        expected: "the older has the machine, the other waits: placed → waiting → reserved",
        act: |_, client, _| Box::pin(wait(client)),
    },
    Scene {
        name: "the shop is told, and fails to listen the first time",
        expected: "order.reserved, order.reserved again under its id, order.converted; each is signed",
        act: |stage, client, _| Box::pin(tell(stage, client)),
    },
    Scene {
        name: "a worker is killed with kill -9 in mid-job",
        expected: "reserved by another worker within 15 s, 1 reservation, attempt 2",
        act: |stage, client, worker| Box::pin(kill(stage, client, worker)),
    },
];

async fn race(client: &Client, category: &str, machines: usize, orders: usize) -> anyhow::Result<String> {
    client.stock(category, machines).await?;
    let placing = (0..orders).map(|n| {
        let key = format!("{category}-{n}");
        async move { client.order(&key, one(category), true).await }
    });
    let answers = try_join_all(placing).await?;
    let reserved = answers.iter().filter(|o| o["status"] == "reserved").count();
    let honest =
        |o: &&Value| o["status"] == "refused" && ["contended", "held"].iter().any(|kind| o["refusal"]["kind"] == *kind);
    let refused = answers.iter().filter(honest).count();
    let taken: BTreeSet<_> = answers.iter().filter_map(asset).collect();
    Ok(format!("{reserved} reserved on {} machines, {refused} refused as contended or held", taken.len()))
}

async fn eight_on_three(client: &Client) -> anyhow::Result<String> {
    race(client, "demo-eight", 3, 8).await
}

async fn two_on_one(client: &Client) -> anyhow::Result<String> {
    race(client, "demo-two", 1, 2).await
}

async fn one_key_five_times(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-key", 4).await?;
    let answers = try_join_all((0..5).map(|_| client.order("demo-same-key", one("demo-key"), true))).await?;
    let ids: BTreeSet<_> = answers.iter().map(|o| text(o, "id")).collect();
    let id = ids.first().context("no answer")?;
    let order = client.read(id).await?;
    let reservations = order["lines"][0]["reservations"].as_array().map_or(0, Vec::len);
    Ok(format!("{} order, {reservations} reservation", ids.len()))
}

async fn convert(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-convert", 1).await?;
    let id = text(&client.order("demo-convert", one("demo-convert"), true).await?, "id");
    client.pay(&id).await?;
    let order = client.until(&id, |o| o["status"] == "converted").await?;
    Ok(format!("{}, {}: {}", text(&order, "status"), text(&order["payment"], "state"), client.history(&id).await?))
}

async fn cancel(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-cancel", 1).await?;
    let first = client.order("demo-cancel-1", one("demo-cancel"), true).await?;
    client.cancel(&text(&first, "id")).await?;
    let next = client.order("demo-cancel-2", one("demo-cancel"), true).await?;
    let same = asset(&first).is_some() && asset(&first) == asset(&next);
    let which = if same { "the same" } else { "another or no" };
    Ok(format!("{}; the next has {which} machine", client.history(&text(&first, "id")).await?))
}

async fn wait(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-wait", 1).await?;
    let first = client.order("demo-wait-1", one("demo-wait"), true).await?;
    let mut waiting = Vec::new();
    for n in [2, 3] {
        let mut patient = one("demo-wait");
        patient["wait_seconds"] = 60.into();
        let id = text(&client.order(&format!("demo-wait-{n}"), patient, false).await?, "id");
        client.until(&id, |o| o["waiting"] == true).await?;
        waiting.push(id);
    }
    client.cancel(&text(&first, "id")).await?;
    // Whoever frees it hands it on in the same transaction: there is nothing to wait for here.
    let (older, other) = (client.read(&waiting[0]).await?, client.read(&waiting[1]).await?);
    let has = if asset(&older).is_some() && asset(&older) == asset(&first) { "has" } else { "has not" };
    let rest = if other["waiting"] == true { "waits" } else { "does not wait" };
    Ok(format!("the older {has} the machine, the other {rest}: {}", client.history(&waiting[0]).await?))
}

async fn tell(stage: &Stage, client: &Client) -> anyhow::Result<String> {
    client.stock("demo-tell", 1).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let Added::New { id: endpoint, secret } = endpoints::add(&stage.db, stage.shop_id, &url, true).await? else {
        bail!("{url} cannot be used");
    };
    let selling = async {
        let id = text(&client.order("demo-tell", one("demo-tell"), true).await?, "id");
        client.pay(&id).await
    };
    let (sold, told) = tokio::join!(selling, receive(&listener, &secret, 3));
    let (_, told) = (sold?, told?);
    endpoints::disable(&stage.db, stage.shop_id, endpoint, "the scene is over").await?;
    let again = if told[0].id == told[1].id { "again under its id" } else { "under another id" };
    let signed = if told.iter().all(|message| message.signed) { "each is signed" } else { "one is not signed" };
    let [first, second, third] = [0, 1, 2].map(|n| told[n].kind.as_str());
    Ok(format!("{first}, {second} {again}, {third}; {signed}"))
}

async fn kill(stage: &Stage, client: &Client, worker: &mut Child) -> anyhow::Result<String> {
    client.stock("demo-kill", 2).await?;
    // Orders are placed while nobody works, so that the job can be met on its way.
    worker.kill().await?;
    let order = client.order("demo-kill", one("demo-kill"), false).await?;
    let id = text(&order, "id");
    let in_the_way = sql::stand_in_the_way(&stage.db, id.parse()?).await?;
    let mut victim = (stage.start_worker)()?;
    sql::until_someone_waits(&stage.db).await?;
    victim.kill().await?;
    in_the_way.rollback().await?;
    let killed = tokio::time::Instant::now();
    *worker = (stage.start_worker)()?;
    let order = client.until(&id, |o| o["status"] != "placed").await?;
    let soon = if killed.elapsed() < Duration::from_secs(15) { "within 15 s" } else { "too late" };
    let reservations = order["lines"][0]["reservations"].as_array().map_or(0, Vec::len);
    let attempt = sql::attempts(&stage.db, id.parse()?).await?;
    let status = text(&order, "status");
    Ok(format!("{status} by another worker {soon}, {reservations} reservation, attempt {attempt}"))
}
