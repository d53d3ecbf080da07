//! API keys from the command line.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use onehold::config::Database;
use onehold::shops::keys::{self, Created, Revoked};
use onehold::shops::{self, MAIN, Scope};

use crate::process;

#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Makes a key and prints it, this once; only its hash is stored
    Create {
        /// The shop whose data it opens
        #[arg(long, default_value = MAIN)]
        shop: String,
        /// What it may be used for: orders, stock, ops
        #[arg(long, required = true, value_delimiter = ',', value_parser = scope)]
        scope: Vec<Scope>,
        /// Its name, which stands in histories as api:NAME; made up if none is given
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        database: Database,
    },
    /// Lists the keys of a shop, without what would let anyone use them
    List {
        /// The shop
        #[arg(long, default_value = MAIN)]
        shop: String,
        #[command(flatten)]
        database: Database,
    },
    /// Revokes the key of that name
    Revoke {
        /// The key's name
        name: String,
        /// The shop
        #[arg(long, default_value = MAIN)]
        shop: String,
        #[command(flatten)]
        database: Database,
    },
}

fn scope(code: &str) -> Result<Scope, String> {
    Scope::from_code(code.trim()).ok_or_else(|| format!("a scope is one of {}", Scope::ALL.map(Scope::code).join(", ")))
}

pub(crate) async fn run(command: Keys) -> anyhow::Result<()> {
    match command.action {
        Action::Create { shop, scope, name, database } => {
            let db = process::connect_migrated(&database).await?;
            let shop = shops::find(&db, &shop).await?.with_context(|| format!("there is no shop {shop}"))?;
            let name = name.unwrap_or_else(|| format!("key-{:08x}", rand::random::<u32>()));
            match keys::create(&db, &shop, &name, &scope).await? {
                Created::New(key) => println!("{key}"),
                Created::NameTaken => bail!("the shop {} has a live key {name}; revoke it first", shop.name),
                Created::BadName => {
                    bail!("a key's name has 1 to {} of A-Z a-z 0-9 . _ -, and is not bootstrap", keys::MOST_NAME_CHARS)
                }
                Created::NoScope => bail!("a key must be good for something: --scope"),
            }
        }
        Action::List { shop, database } => {
            let db = process::connect_migrated(&database).await?;
            let shop = shops::find(&db, &shop).await?.with_context(|| format!("there is no shop {shop}"))?;
            for key in keys::list(&db, shop.id).await? {
                let revoked = key.revoked_at.map_or("live".to_owned(), |at| format!("revoked {}", at.to_rfc3339()));
                println!("{}\t{}\t{}\t{revoked}", key.name, key.scopes.join(","), key.created_at.to_rfc3339());
            }
        }
        Action::Revoke { name, shop, database } => {
            let db = process::connect_migrated(&database).await?;
            let shop = shops::find(&db, &shop).await?.with_context(|| format!("there is no shop {shop}"))?;
            match keys::revoke(&db, shop.id, &name).await? {
                Revoked::Done => println!("{name} is revoked; processes that have just seen it take up to 5 s"),
                Revoked::Before => println!("{name} was revoked before"),
                Revoked::NoSuchKey => bail!("the shop {} has no key {name}", shop.name),
            }
        }
    }
    Ok(())
}
