//! Every invariant on the live database.

use std::process::ExitCode;

use onehold::db::{self, Db};
use onehold::ops::verify;

pub(crate) async fn run(db: &Db) -> anyhow::Result<ExitCode> {
    db::check_schema(db).await?;
    println!("           broken of   looked at  what must hold");
    let checks = verify::verify(db, |check| {
        let mark = if check.broken == 0 { "ok    " } else { "BROKEN" };
        println!("{mark}  {:>9} of {:>9}  {}", check.broken, check.looked_at, check.invariant);
    })
    .await?;
    Ok(if checks.iter().all(|check| check.broken == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
