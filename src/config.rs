//! Settings: the only place that reads the environment. Each command line takes the groups it needs; every
//! setting is an option, and can be given by the environment variable that `--help` names.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};

/// A text that is never shown: not by `--help`, not by `Debug`, not in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for whoever has to use it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    /// White space around it (a line's end in a file, a blank after a comma) is not part of it. There is no
    /// other check here: a complaint would show the text.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Which database.
#[derive(Args, Clone, Debug)]
pub struct Database {
    /// The database to work on: postgres://USER:PASSWORD@HOST:PORT/NAME
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,
    /// The most connections of this process to the database
    #[arg(long, env = "ONEHOLD_CONNECTIONS", default_value_t = 10, value_name = "N",
          value_parser = value_parser!(u32).range(2..=1_000))]
    pub connections: u32,
}

impl Database {
    /// The database's address, if one is given; an empty one is none.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.database_url.as_ref().map(Secret::expose).filter(|url| !url.is_empty())
    }
}

/// The PostgreSQL server that runs as a part of this installation where no database is given.
#[derive(Args, Clone, Debug)]
pub struct OwnServer {
    /// Where its data stands, kept between runs
    #[arg(long, env = "ONEHOLD_DATA_DIR", default_value = ".onehold", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Its programs
    #[command(flatten)]
    pub programs: ServerPrograms,
}

/// What runs a PostgreSQL server of this installation, or a throwaway one.
#[derive(Args, Clone, Debug)]
pub struct ServerPrograms {
    /// Where PostgreSQL's server programs are (initdb, postgres), if not where they usually are
    #[arg(long, env = "ONEHOLD_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
}

/// Where to listen.
#[derive(Args, Clone, Debug)]
pub struct Listen {
    /// The address to listen on; 0.0.0.0 for every network of this machine
    #[arg(long, env = "ONEHOLD_HOST", default_value = "127.0.0.1", value_name = "HOST")]
    pub host: String,
    /// The port to listen on; 0 for any that is free
    #[arg(long, env = "PORT", default_value_t = 8080, value_name = "PORT")]
    pub port: u16,
}

/// Where a process without a web app of its own tells how it goes.
#[derive(Args, Clone, Debug)]
pub struct Watching {
    /// Answer /metrics, /healthz and /readyz on this port, without a key; not at all if none is given
    #[arg(long, env = "ONEHOLD_METRICS_PORT", value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// The address of that port; whoever reaches it reads the numbers
    #[arg(long, env = "ONEHOLD_METRICS_HOST", default_value = "127.0.0.1", value_name = "HOST")]
    pub metrics_host: String,
}

/// The key and the webhook secrets of the shop `main` that stand in the settings.
#[derive(Args, Clone, Debug, Default)]
pub struct ShopSecrets {
    /// An API key of the shop `main` with every scope, for first use
    #[arg(long, env = "ONEHOLD_BOOTSTRAP_KEY", hide_env_values = true, value_name = "KEY")]
    pub bootstrap_key: Option<Secret>,
    /// Stripe's webhook secrets of the shop `main`, separated by commas; any of them is valid
    #[arg(
        long,
        env = "ONEHOLD_STRIPE_WEBHOOK_SECRETS",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "SECRET"
    )]
    pub stripe_webhook_secrets: Vec<Secret>,
    /// Standard Webhooks secrets of the shop `main`, separated by commas; any of them is valid
    #[arg(
        long,
        env = "ONEHOLD_STANDARD_WEBHOOK_SECRETS",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "SECRET"
    )]
    pub standard_webhook_secrets: Vec<Secret>,
}

/// How jobs are worked on.
#[derive(Args, Clone, Debug)]
pub struct Work {
    /// How many jobs of a queue run at once in this process; each queue has its own usual number
    #[arg(long, env = "ONEHOLD_CONCURRENCY", value_name = "N", value_parser = value_parser!(u16).range(1..=500))]
    pub concurrency: Option<u16>,
}

/// What is imported.
#[derive(Args, Clone, Debug)]
pub struct Importing {
    /// The shop that it is imported into
    #[arg(long, env = "ONEHOLD_SHOP", default_value = "main", value_name = "SHOP")]
    pub shop: String,
    /// The rows are assets; without this and --stock, the header or the first object tells
    #[arg(long, env = "ONEHOLD_IMPORT_ASSETS", conflicts_with = "stock")]
    pub assets: bool,
    /// The rows are movements of stock
    #[arg(long, env = "ONEHOLD_IMPORT_STOCK")]
    pub stock: bool,
    /// How they are written; without this, the file's ending tells: .csv, .ndjson or .jsonl
    #[arg(long, env = "ONEHOLD_IMPORT_FORMAT", value_enum, value_name = "FORMAT")]
    pub format: Option<RowFormat>,
}

/// How the rows of an import are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// Comma-separated, with a header
    Csv,
    /// One JSON object a line
    Ndjson,
}

/// How this process ends.
#[derive(Args, Clone, Copy, Debug)]
pub struct Ending {
    /// How many seconds running requests and jobs have to finish after SIGTERM or Ctrl-C
    #[arg(long, env = "ONEHOLD_GRACE_SECONDS", default_value_t = 25, value_name = "SECONDS",
          value_parser = value_parser!(u64).range(0..=3_600))]
    grace_seconds: u64,
}

impl Ending {
    /// The grace period. 25 s unless set otherwise: platforms kill after 30.
    #[must_use]
    pub fn grace(self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}

/// What is logged, to standard error.
#[derive(Args, Clone, Debug)]
pub struct Logging {
    /// What to log: a level (error, warn, info, debug) or a list such as info,onehold=debug
    #[arg(long = "log", env = "RUST_LOG", default_value = "info,sqlx=warn,apalis_core=warn", value_name = "FILTER")]
    pub filter: String,
    /// Log one JSON object a line
    #[arg(long, env = "ONEHOLD_LOG_JSON")]
    pub log_json: bool,
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP; to none if none is given
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

impl Logging {
    /// The collector of traces, if one is named; an empty name is none.
    #[must_use]
    pub fn collector(&self) -> Option<&str> {
        self.otlp_endpoint.as_deref().filter(|url| !url.is_empty())
    }
}

/// This very program, for those of its commands that start others.
///
/// # Errors
/// A system that does not say.
pub fn this_executable() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}

/// Where what is thrown away at the end is put meanwhile.
#[must_use]
pub fn temporary_dir() -> PathBuf {
    std::env::temp_dir()
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    /// Every group on one command line, as `up` takes them.
    fn command() -> Command {
        let mut command = Command::new("all");
        command = Database::augment_args(command);
        command = OwnServer::augment_args(command);
        command = Listen::augment_args(command);
        command = ShopSecrets::augment_args(command);
        command = Watching::augment_args(command);
        command = Work::augment_args(command);
        command = Importing::augment_args(command);
        command = Ending::augment_args(command);
        Logging::augment_args(command)
    }

    #[test]
    fn the_environment_variables_are_those_that_are_promised() {
        let command = command();
        let names: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
        for name in [
            "PORT",
            "DATABASE_URL",
            "RUST_LOG",
            "ONEHOLD_BOOTSTRAP_KEY",
            "ONEHOLD_STRIPE_WEBHOOK_SECRETS",
            "ONEHOLD_STANDARD_WEBHOOK_SECRETS",
            "ONEHOLD_PG_BIN",
        ] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(command.get_arguments().all(|arg| arg.get_help().is_some()), "every setting is explained");
    }

    #[test]
    fn secrets_are_hidden_from_help_and_debug() {
        let command = command();
        for arg in command.get_arguments() {
            let id = arg.get_id().as_str();
            let secret = ["secret", "key", "url"].iter().any(|word| id.contains(word));
            assert!(!secret || arg.is_hide_env_values_set(), "{id}");
        }
        let line = [
            "all",
            "--bootstrap-key",
            "S3CRET",
            "--stripe-webhook-secrets",
            "S3CRET, S3CRET-2",
            "--database-url",
            "postgres://u:S3CRET@h/d",
        ];
        let matches = command.try_get_matches_from(line).unwrap();
        let secrets = ShopSecrets::from_arg_matches(&matches).unwrap();
        assert_eq!(secrets.stripe_webhook_secrets[1].expose(), "S3CRET-2");
        let database = Database::from_arg_matches(&matches).unwrap();
        assert_eq!(database.url(), Some("postgres://u:S3CRET@h/d"));
        assert!(!format!("{secrets:?}{database:?}").contains("S3CRET"));
    }
}
