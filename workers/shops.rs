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
    /// Lists the shops
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
            for shop in shops::list(&process::connect(&database).await?).await? {
                println!("{}", shop.name);
            }
        }
    }
    Ok(())
}
