//! Endpoints of outbound events from the command line.

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use onehold::config::Database;
use onehold::courier::endpoints::{self, Added, Disabled, Replayed, Which, Window};
use onehold::db::Db;
use onehold::shops::{self, MAIN};
use uuid::Uuid;

use crate::process;

#[derive(Args)]
pub(crate) struct Endpoints {
    #[command(subcommand)]
    action: Action,
}

#[derive(Args)]
struct Of {
    /// The shop
    #[arg(long, default_value = MAIN, value_name = "SHOP")]
    shop: String,
    #[command(flatten)]
    database: Database,
}

#[derive(Subcommand)]
enum Action {
    /// Adds an endpoint that is told of every decision from now on, and prints its id and, this once, its secret
    Add {
        /// Where: https://…
        url: String,
        /// It may be at a private, loopback or link-local address, and without TLS (http://)
        #[arg(long)]
        allow_private: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Lists the endpoints of a shop, without their secrets
    List {
        #[command(flatten)]
        of: Of,
    },
    /// Disables an endpoint for ever, and gives up what it has not been told
    Disable {
        /// The endpoint's id
        id: Uuid,
        #[command(flatten)]
        of: Of,
    },
    /// Delivers again: one event, or those that were decided in a time
    Replay {
        /// The endpoint's id
        id: Uuid,
        /// This event alone
        #[arg(long, value_name = "EVENT", conflicts_with_all = ["since", "until"], required_unless_present = "since")]
        event: Option<Uuid>,
        /// What was decided from then on (RFC 3339)
        #[arg(long, value_name = "TIME")]
        since: Option<DateTime<Utc>>,
        /// What was decided before then (RFC 3339); now, if not given
        #[arg(long, value_name = "TIME", requires = "since")]
        until: Option<DateTime<Utc>>,
        #[command(flatten)]
        of: Of,
    },
}

pub(crate) async fn run(command: Endpoints) -> anyhow::Result<()> {
    match command.action {
        Action::Add { url, allow_private, of } => {
            let (db, shop) = open(&of).await?;
            match endpoints::add(&db, shop.id, &url, allow_private).await? {
                Added::New { id, secret } => println!("{id}\t{secret}"),
                Added::Unusable(why) => bail!("the URL {url:?} {why}"),
            }
        }
        Action::List { of } => {
            let (db, shop) = open(&of).await?;
            for endpoint in endpoints::list(&db, shop.id).await? {
                let because = endpoint.disabled_because.unwrap_or_default();
                let state = endpoint
                    .disabled_at
                    .map_or("live".to_owned(), |at| format!("disabled {}: {because}", at.to_rfc3339()));
                println!("{}\t{}\t{} pending\t{state}", endpoint.id, endpoint.url, endpoint.pending);
            }
        }
        Action::Disable { id, of } => {
            let (db, shop) = open(&of).await?;
            match endpoints::disable(&db, shop.id, id, "by command").await? {
                Disabled::Done => println!("{id} is disabled"),
                Disabled::Before => println!("{id} was disabled before"),
                Disabled::NoSuchEndpoint => bail!("the shop {} has no endpoint {id}", shop.name),
            }
        }
        Action::Replay { id, event, since, until, of } => {
            let which = match (event, since) {
                (Some(event), _) => Which::One(event),
                (None, Some(since)) => Which::Within(Window { since, until: until.unwrap_or_else(Utc::now) }),
                (None, None) => bail!("say which: --event, or --since"),
            };
            let (db, shop) = open(&of).await?;
            replay(&db, &shop, id, which).await?;
        }
    }
    Ok(())
}

async fn open(of: &Of) -> anyhow::Result<(Db, shops::Shop)> {
    let db = process::connect(&of.database).await?;
    let shop = shops::find(&db, &of.shop).await?.with_context(|| format!("there is no shop {}", of.shop))?;
    Ok((db, shop))
}

async fn replay(db: &Db, shop: &shops::Shop, id: Uuid, which: Which) -> anyhow::Result<()> {
    match endpoints::replay(db, shop.id, id, which).await? {
        Replayed::Done { events, go_on_from: None } => println!("{events} events are on their way"),
        Replayed::Done { events, go_on_from: Some(at) } => {
            println!("{events} events are on their way; go on with --since {}", at.to_rfc3339());
        }
        Replayed::Disabled => bail!("the endpoint {id} is disabled"),
        Replayed::NoSuchEndpoint => bail!("the shop {} has no endpoint {id}", shop.name),
        Replayed::NoSuchEvent => bail!("the shop {} has no such event", shop.name),
    }
    Ok(())
}
