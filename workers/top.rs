//! The overview in a terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use onehold::config::Database;
use onehold::ops::{Watch, top};
use onehold::shops;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::process;

const EVERY: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct Top {
    /// The shop that is looked at; without this, what stands over the whole installation, and the last hour of `main`
    #[arg(long, value_name = "SHOP")]
    shop: Option<String>,
    /// Prints all of it once, as plain text
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    database: Database,
}

pub(crate) async fn run(command: Top) -> anyhow::Result<()> {
    let db = process::connect_migrated(&command.database).await?;
    let name = command.shop.as_deref().unwrap_or(shops::MAIN);
    let Some(shop) = shops::find(&db, name).await? else { bail!("there is no shop {name}") };
    let (watch, all) = (Watch::of(&db), command.shop.is_none());
    let mut view = top::look(&watch, shop.id, all).await.context("the database did not answer in time")?;
    if command.once || !std::io::stdout().is_terminal() {
        print!("{}", top::plain(&view));
        return Ok(());
    }
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let mut trouble = None;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| top::draw(frame, &view, trouble.as_deref())) {
            break Err(error.into());
        }
        match tokio::task::spawn_blocking(asked_to_end).await? {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
        // What was seen last stays in sight, and is said to be old.
        match top::look(&watch, shop.id, all).await {
            Ok(now) => (view, trouble) = (now, None),
            Err(error) => trouble = Some(error.to_string()),
        }
    };
    ratatui::restore();
    ended
}

/// Whether somebody presses q, Escape or Ctrl-C within the time until the next look.
fn asked_to_end() -> std::io::Result<bool> {
    if !event::poll(EVERY)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let ends = match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    };
    Ok(ends && key.kind == KeyEventKind::Press)
}
