//! A counter in Redis that keeps nothing on disk: as quick as it can be.

use std::io::ErrorKind;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::process::{Child, Command};

use crate::bench::Bench;

const KEY: &str = "bench-hot";
const START_LIMIT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The server's process, which ends with the last clone, and a connection to it that many may use at once.
#[derive(Clone)]
pub(in crate::bench) struct Redis {
    connection: MultiplexedConnection,
    _process: Arc<Child>,
}

impl Redis {
    /// Starts a server whose counter stands at `units`; none where there is no `redis-server` on this machine.
    pub(in crate::bench) async fn start(bench: &Bench<'_>, ratio: &str, units: i32) -> anyhow::Result<Option<Self>> {
        let Some(dir) = &bench.fleet.data_dir else {
            bench.skip(ratio, "the database is not on this machine");
            return Ok(None);
        };
        let socket = dir.join("bench-redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bench.skip(ratio, "redis-server is not installed");
                return Ok(None);
            }
            Err(error) => return Err(error).context("redis-server"),
        };
        let client = redis::Client::open(format!("redis+unix://{}", socket.display()))?;
        let since = Instant::now();
        let mut connection = loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => break connection,
                Err(error) if since.elapsed() > START_LIMIT => return Err(error).context("redis-server"),
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        };
        let () = connection.set(KEY, units).await?;
        Ok(Some(Self { connection, _process: Arc::new(process) }))
    }

    /// Counts one unit down; false where none was left.
    pub(in crate::bench) async fn take(&self) -> anyhow::Result<bool> {
        let left: i64 = self.connection.clone().decr(KEY, 1).await?;
        Ok(left >= 0)
    }
}
