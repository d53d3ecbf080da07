//! Import of assets or stock from a CSV or NDJSON text: read and checked row by row in bounded memory, laid beside
//! the shop's tables by COPY, and taken over by statements over all rows at once, in one transaction. Whatever does
//! not fit is named by its line, and then nothing is written.

mod bad;
mod copy;
mod csv;
mod reader;
mod row;
mod source;
mod sql;
mod stage;
mod table;

use std::io::Read;
use std::time::Duration;

use anyhow::anyhow;
use sqlx::ConnectOptions as _;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout_at};

use self::reader::{Piece, Rows};
use crate::db::{Db, Fault, Tx, Verdict};

pub use self::bad::{BadRow, BadRows, MOST_NAMED};

/// How long the transaction waits for the next rows: it keeps the server from clearing away dead rows.
const MOST_SILENCE: Duration = Duration::from_secs(60);
/// How long it may be open while rows come in.
const MOST_READING: Duration = Duration::from_secs(30 * 60);
/// One for the transaction; and as many as the handle needs beside.
const CONNECTIONS: u32 = 2;
/// How many waiting orders are woken; the housekeeping wakes the others.
const MOST_WOKEN: i32 = 1_000;
/// How many pools are refilled at the end; the others are when they are needed.
const MOST_REFILLS: i64 = 1_000;

/// What the rows are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Things that exist once, each by its key.
    Assets,
    /// Movements of stock, each by its reference.
    Stock,
}

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated, with a header.
    Csv,
    /// One JSON object a line.
    Ndjson,
}

/// How far an import has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So much has been read and handed to the database; nothing of it counts yet.
    Reading {
        /// Bytes of the input.
        bytes: u64,
        /// Good rows.
        rows: u64,
    },
    /// Every row has been read, and the database takes them over.
    TakingOver,
    /// Everything is written, and the pools are refilled.
    Refilling,
}

/// What became of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Every row is there.
    Done(Counts),
    /// These rows do not fit; nothing was written.
    Refused(BadRows),
    /// Another import into this shop is running; nothing was written.
    Busy,
}

/// How many rows an import had, and what they changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows of the input.
    pub rows: u64,
    /// Those that were not there.
    pub new: u64,
    /// Assets that were there and were described anew.
    pub replaced: u64,
}

impl Kind {
    const UNKNOWN: &str = "whether these are assets or stock is told by a field `key` or `sku`: have one of them, or give --assets or --stock";

    /// What rows with these fields are of.
    fn recognise(has: impl Fn(&str) -> bool) -> Option<Self> {
        match (has("key"), has("sku")) {
            (true, false) => Some(Self::Assets),
            (false, true) => Some(Self::Stock),
            (true, true) | (false, false) => None,
        }
    }
}

/// What comes in, and who is told of it.
struct Input<'a> {
    first: Rows,
    pieces: mpsc::Receiver<Piece>,
    told: &'a mut (dyn FnMut(Progress) + Send),
}

/// Imports what `reader` gives into a shop, as one whole. Without `kind`, the header or the first object tells it.
/// Until the first rows are there, it waits for the reader as long as that takes; after that it may be silent for a
/// minute at most.
///
/// # Errors
/// An input that could not be read, or faults of the database. Nothing was written.
pub async fn import(
    db: &Db,
    shop_id: i32,
    reader: Box<dyn Read + Send>,
    format: Format,
    kind: Option<Kind>,
    mut told: impl FnMut(Progress) + Send,
) -> Result<Imported, Fault> {
    let mut pieces = reader::start(reader, format, kind).map_err(anyhow::Error::from)?;
    let first = match pieces.recv().await {
        Some(Piece::Rows(rows)) => rows,
        Some(Piece::End(bad)) if bad.count > 0 => return Ok(Imported::Refused(bad)),
        Some(Piece::End(_)) => return Ok(Imported::Done(Counts::default())),
        other => return Err(unreadable(other)),
    };
    let db = &patient(db).await?;
    let kind = first.kind;
    let input = Mutex::new(Some(Input { first, pieces, told: &mut told }));
    let input = &input;
    let (imported, pools) = db
        .transaction("import", |mut tx| {
            Box::pin(async move {
                // It cannot be run again: what was read is gone.
                let whole = match input.lock().await.take() {
                    Some(input) => whole(&mut tx, shop_id, kind, input).await,
                    None => Err(anyhow!("an import cannot be run again").into()),
                };
                whole.map_err(|fault| if fault.is_retryable() { once_only(&fault) } else { fault })
            })
        })
        .await?;
    if !pools.is_empty() {
        told(Progress::Refilling);
        stage::refill(db, shop_id, &pools).await;
    }
    Ok(imported)
}

/// A handle of its own: statements over a million rows take long, and that is nothing to be warned of.
async fn patient(db: &Db) -> Result<Db, Fault> {
    Ok(Db::connect_with(db.options().clone().disable_statement_logging(), CONNECTIONS).await?)
}

/// The whole transaction.
async fn whole(
    tx: &mut Tx<'_, '_>,
    shop_id: i32,
    kind: Kind,
    mut input: Input<'_>,
) -> Result<Verdict<(Imported, Vec<stage::Pool>)>, Fault> {
    if !sql::begin(tx, shop_id).await? {
        return Ok(Verdict::Rollback((Imported::Busy, Vec::new())));
    }
    let (rows, bad) = lay_beside(tx, kind, &mut input).await?;
    (input.told)(Progress::TakingOver);
    let (counts, bad) = match kind {
        Kind::Assets => stage::assets(tx, shop_id, bad).await?,
        Kind::Stock => stage::stock(tx, shop_id, bad).await?,
    };
    if bad.count > 0 {
        return Ok(Verdict::Rollback((Imported::Refused(bad), Vec::new())));
    }
    // Who waits is served by his own job: a transaction as long as this one must lock nobody's order.
    sql::wake_waiting(tx, shop_id, MOST_WOKEN).await?;
    let pools = match kind {
        Kind::Assets => Vec::new(),
        Kind::Stock => sql::pools(tx, shop_id, MOST_REFILLS).await?,
    };
    Ok(Verdict::Commit((Imported::Done(Counts { rows, ..counts }), pools)))
}

/// Copies every good row into a temporary table. Gives how many those are, and the bad ones. Each piece is a
/// statement of its own, so that none waits for the input.
async fn lay_beside(tx: &mut Tx<'_, '_>, kind: Kind, input: &mut Input<'_>) -> Result<(u64, BadRows), Fault> {
    let deadline = Instant::now() + MOST_READING;
    sql::create(tx, kind).await?;
    let mut rows = 0;
    let mut next = std::mem::take(&mut input.first.text);
    let (mut count, mut bytes) = (input.first.count, input.first.bytes_read);
    loop {
        sql::copy(tx, &next).await?;
        rows += count;
        (input.told)(Progress::Reading { bytes, rows });
        let silent = deadline.min(Instant::now() + MOST_SILENCE);
        match timeout_at(silent, input.pieces.recv()).await {
            Ok(Some(Piece::Rows(more))) => (next, count, bytes) = (more.text, more.count, more.bytes_read),
            Ok(Some(Piece::End(bad))) => return Ok((rows, bad)),
            Ok(other) => return Err(unreadable(other)),
            Err(_) => {
                return Err(anyhow!(
                    "the input gave no row for {} s, or lasted longer than {} min; nothing was written",
                    MOST_SILENCE.as_secs(),
                    MOST_READING.as_secs() / 60
                )
                .into());
            }
        }
    }
}

fn unreadable(piece: Option<Piece>) -> Fault {
    match piece {
        Some(Piece::Broken(error)) => anyhow::Error::from(error).context("the input cannot be read").into(),
        Some(Piece::Rows(_) | Piece::End(_)) | None => anyhow!("reading the input ended early").into(),
    }
}

/// A fault that running again would mend, if what was read were still there.
fn once_only(fault: &Fault) -> Fault {
    anyhow!("others were changing the same rows ({fault}); nothing was written, import it again").into()
}
