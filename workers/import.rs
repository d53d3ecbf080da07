//! Assets or stock from a file or from standard input, with a progress bar where somebody is watching.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use onehold::config::{Database, Importing, RowFormat};
use onehold::shops;
use onehold::stock::import::{self, BadRows, Format, Imported, Kind, Progress};

use crate::process;

/// What `--help` says of the files.
const FILES: &str = "\
CSV files are comma-separated UTF-8 (a byte order mark is passed over) and begin with a header of these names, in \
any order. An empty cell is a value that is not given.

Columns of assets:
  key             the asset's own name; one asset per key, which a second import describes anew
  category        what it is sold as
  location        where it stands
  vendor          whose it is (may be left out, like all that follow)
  status          ready, maintenance or retired; ready if not given
  rank            a whole number; lower is allocated first; 0 if not given
  available_from  an RFC 3339 timestamp before which it is not sold
  attributes      a JSON object, such as {\"ram_gb\": 256}
  attributes.NAME one attribute: JSON where the cell is JSON (256, true, \"007\"), the text itself where it is not

Columns of stock:
  sku             what it is
  location        where it is
  delta           how many units more, at least 1; what takes away is posted by itself, to /v1/stock/movements
  kind            receipt, adjustment or return; receipt if not given
  reference       makes the movement count once: a second import of it changes nothing

NDJSON has one object a line with the same names as fields, `attributes` being an object.

Every row is checked as over HTTP. If one does not fit, nothing is written: the first 100 such rows are named by \
their line and what is wrong with them. A row is at most 1 MiB long.";

#[derive(Args)]
#[command(after_long_help = FILES)]
pub(crate) struct Import {
    /// The file to read; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    what: Importing,
    #[command(flatten)]
    database: Database,
}

pub(crate) async fn run(command: Import) -> anyhow::Result<ExitCode> {
    let Import { file, what, database } = command;
    let format = format(&file, what.format)?;
    let kind = match (what.assets, what.stock) {
        (true, _) => Some(Kind::Assets),
        (false, true) => Some(Kind::Stock),
        (false, false) => None,
    };
    let (reader, length) = open(&file)?;
    let db = process::connect_migrated(&database).await?;
    let shop = shops::find(&db, &what.shop).await?.with_context(|| format!("there is no shop {}", what.shop))?;
    let bar = bar(length);
    let imported = import::import(&db, shop.id, reader, format, kind, |progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    match imported.with_context(|| file.display().to_string())? {
        Imported::Done(counts) => {
            let known = counts.rows - counts.new - counts.replaced;
            println!(
                "imported {} rows: {} new, {} described anew, {known} known already",
                counts.rows, counts.new, counts.replaced
            );
            Ok(ExitCode::SUCCESS)
        }
        Imported::Refused(bad) => {
            name(&bad);
            Ok(ExitCode::FAILURE)
        }
        Imported::Busy => {
            bail!("another import into the shop {} is running; nothing was written, import again after it", shop.name)
        }
    }
}

fn format(file: &Path, asked: Option<RowFormat>) -> anyhow::Result<Format> {
    let by_ending = || match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" => Some(RowFormat::Csv),
        "ndjson" | "jsonl" => Some(RowFormat::Ndjson),
        _ => None,
    };
    match asked.or_else(by_ending) {
        Some(RowFormat::Csv) => Ok(Format::Csv),
        Some(RowFormat::Ndjson) => Ok(Format::Ndjson),
        None => {
            bail!("the name {} does not tell how its rows are written; give --format csv or ndjson", file.display())
        }
    }
}

/// What to read, and how many bytes that is, where it is known.
fn open(file: &Path) -> anyhow::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    let length = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok((Box::new(opened), length))
}

/// Drawn to standard error, and only where that is a terminal.
fn bar(length: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (ProgressBar::new(length), "{wide_bar} {bytes} of {total_bytes}, {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {msg}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    // A template that cannot be read would only mean the usual looks.
    let bar = bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Reading { bytes, rows } => {
            bar.set_position(bytes);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate to look at")]
            let rate = (rows as f64 / bar.elapsed().as_secs_f64().max(0.001)) as u64;
            bar.set_message(format!("{} rows, {} rows/s", HumanCount(rows), HumanCount(rate)));
        }
        Progress::TakingOver => bar.set_message("all read; the database takes the rows over"),
        Progress::Refilling => bar.set_message("all written; refilling pools"),
    }
}

/// Names the bad rows on standard error.
fn name(bad: &BadRows) {
    for row in &bad.named {
        eprintln!("line {}: {}", row.line, row.reason);
    }
    let named = bad.named.len() as u64;
    if bad.count > named {
        eprintln!("and {} more", bad.count - named);
    }
    let rows = if bad.count == 1 { "row is" } else { "rows are" };
    eprintln!("onehold: {} {rows} bad; nothing was written", bad.count);
}
