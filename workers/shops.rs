//! Shops from the command line.

use anyhow::bail;
use clap::{Args, Subcommand};
use onehold::config::Database;
use onehold::shops::{self, Created};

use crate::process;

#[derive(Args)]
pub(crate) struct Shops {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Opens a shop
    Create {
        /// Its name: lower-case letters, digits and -
        name: String,
        #[command(flatten)]
        database: Database,
    },
    /// Limits how much one buyer may hold at a time: each asset and each unit counts one
    LimitBuyers {
        /// The shop
        name: String,
        /// The most that one buyer may hold at a time, from 1 to 1000000, or `unlimited` (as every shop begins)
        #[arg(value_parser = most_per_buyer)]
        most: Most,
        #[command(flatten)]
        database: Database,
    },
    /// Lists the shops, each with its limit per buyer where it has one
    List {
        #[command(flatten)]
        database: Database,
    },
}

pub(crate) async fn run(command: Shops) -> anyhow::Result<()> {
    match command.action {
        Action::Create { name, database } => match shops::create(&process::connect(&database).await?, &name).await? {
            Created::New(shop) => println!("{}", shop.name),
            Created::NameTaken => bail!("there is a shop {name}"),
            Created::BadName => bail!("a shop's name has 1 to 63 of a-z 0-9 -, and begins with a letter or digit"),
        },
        Action::List { database } => {
            let db = process::connect(&database).await?;
            for shop in shops::list(&db).await? {
                match shops::buyer_limit(&db, &shop).await? {
                    None => println!("{}", shop.name),
                    Some(most) => println!("{}  at most {most} held per buyer", shop.name),
                }
            }
        }
        Action::LimitBuyers { name, most, database } => {
            let db = process::connect(&database).await?;
            let Some(shop) = shops::find(&db, &name).await? else { bail!("there is no shop {name}") };
            if !shops::limit_buyers(&db, &shop, most.0).await? {
                bail!("there is no shop {name}");
            }
        }
    }
    Ok(())
}

/// A limit, or none.
#[derive(Clone, Copy)]
struct Most(Option<i32>);

fn most_per_buyer(text: &str) -> Result<Most, String> {
    if text == "unlimited" {
        return Ok(Most(None));
    }
    match text.parse() {
        Ok(most) if (1..=shops::MOST_HOLDS_PER_BUYER).contains(&most) => Ok(Most(Some(most))),
        _ => Err(format!("must be a whole number from 1 to {}, or unlimited", shops::MOST_HOLDS_PER_BUYER)),
    }
}
