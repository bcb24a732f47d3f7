//! The command line, as `--help` shows it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// PostgreSQL changes as Iceberg tables, exactly once, and SQL tables that stay fresh.
#[derive(Debug, Parser)]
#[command(name = "embrasure-flow", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failure a restart may clear, 2 usage, 3 not ready, 70 broken invariant, \
75 unavailable, 78 something you must change, 79 resynchronisation required.

Example:
  embrasure-flow new my-lake && cd my-lake
  export FLOW_POSTGRES_URL='postgres://user:password@localhost:5432/shop'
  embrasure-flow check --source && embrasure-flow run --init"
)]
pub struct Arguments {
    /// The configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "flow.toml",
        env = "FLOW_CONFIG"
    )]
    pub config: PathBuf,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Is one command with its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented flow.toml and an example transformation
    #[command(after_help = "Example:\n  embrasure-flow new my-lake")]
    New(New),
    /// Validate the configuration and, with flags, connect read-only and report each check
    #[command(after_help = "Example:\n  embrasure-flow check --source --catalog")]
    Check(Check),
    /// Print [[tables]] blocks for the tables of the publication
    #[command(
        after_help = "Example:\n  embrasure-flow discover --schema public --target-namespace bronze >> flow.toml"
    )]
    Discover(Discover),
    /// Create the slot, copy existing rows and publish them; resumable
    #[command(after_help = "Example:\n  embrasure-flow init --create-publication")]
    Init(Init),
    /// Follow every change until told to stop
    #[command(after_help = "Example:\n  embrasure-flow --config /etc/flow/flow.toml run --init")]
    Run(Run),
    /// Show where everything stands; exit 0 if ready, 3 if not
    #[command(after_help = "Example:\n  embrasure-flow status --json | jq .source.published_lsn")]
    Status(JsonFlag),
    /// Parse and validate all dynamic tables; show each one's refresh mode and why
    #[command(after_help = "Example:\n  embrasure-flow plan")]
    Plan(JsonFlag),
    /// Print which dynamic table reads which tables
    #[command(after_help = "Example:\n  embrasure-flow dag")]
    Dag,
    /// Refresh every dynamic table once, in order
    #[command(after_help = "Example:\n  embrasure-flow apply")]
    Apply,
    /// Refresh one dynamic table
    #[command(after_help = "Example:\n  embrasure-flow refresh gold.delivery_quality_daily --full")]
    Refresh(Refresh),
    /// Stop refreshing a dynamic table until it is resumed
    #[command(after_help = "Example:\n  embrasure-flow suspend gold.delivery_quality_daily")]
    Suspend(Named),
    /// End a suspension, or a block whose cause is gone
    #[command(after_help = "Example:\n  embrasure-flow resume gold.delivery_quality_daily")]
    Resume(Named),
    /// Remove a dynamic table that no file declares any more; its files in the warehouse stay
    #[command(after_help = "Example:\n  embrasure-flow drop gold.delivery_quality_daily")]
    Drop(Named),
    /// Recompute a dynamic table at the cut it reflects and compare; exit 0 if equal, 4 if not
    #[command(after_help = "Example:\n  embrasure-flow verify gold.delivery_quality_daily")]
    Verify(Verify),
    /// Run read-only SQL over the catalog's tables, all at one cut
    #[command(
        after_help = "Example:\n  embrasure-flow query 'SELECT status, count(*) FROM bronze.orders GROUP BY status'"
    )]
    Query(Query),
    /// Show the refreshes of a dynamic table, newest first
    #[command(after_help = "Example:\n  embrasure-flow history gold.delivery_quality_daily --json")]
    History(History),
    /// Write generated documentation
    #[command(hide = true)]
    Docs(Docs),
}

/// Arguments of `new`.
#[derive(Debug, Args)]
pub struct New {
    /// The directory to write to; created if it is missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Connect to PostgreSQL and check what capture needs
    #[arg(long)]
    pub source: bool,
    /// Open the catalog and the warehouse and check the targets
    #[arg(long)]
    pub catalog: bool,
    /// Print the checks as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `discover`.
#[derive(Debug, Args)]
pub struct Discover {
    /// Only these tables, `schema.table`
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,
    /// Only tables of this schema
    #[arg(long, value_name = "SCHEMA")]
    pub schema: Option<String>,
    /// The namespace for targets; default: the table's schema
    #[arg(long, value_name = "NAMESPACE")]
    pub target_namespace: Option<String>,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Create the publication if it is missing
    #[arg(long)]
    pub create_publication: bool,
    /// How to log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Do what `init` does first, if it is not done
    #[arg(long)]
    pub init: bool,
    /// With --init: create the publication if it is missing
    #[arg(long, requires = "init")]
    pub create_publication: bool,
    /// How to log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// Is how log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Arguments of commands that print a document.
#[derive(Debug, Args)]
pub struct JsonFlag {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `refresh`.
#[derive(Debug, Args)]
pub struct Refresh {
    /// The dynamic table, `namespace.table`
    pub name: String,
    /// Recompute everything, even if no input changed
    #[arg(long)]
    pub full: bool,
}

/// Arguments of commands on one dynamic table.
#[derive(Debug, Args)]
pub struct Named {
    /// The dynamic table, `namespace.table`
    pub name: String,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The dynamic table, `namespace.table`
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `query`.
#[derive(Debug, Args)]
pub struct Query {
    /// One SELECT statement
    pub sql: String,
    /// How to print the rows
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    pub format: RowFormat,
}

/// Is how rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// For people
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values with a head line
    Csv,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub struct History {
    /// The dynamic table, `namespace.table`
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `docs`.
#[derive(Debug, Args)]
pub struct Docs {
    /// What to write
    #[arg(value_enum)]
    pub page: Page,
}

/// Is a generated page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// docs/configuration.md
    Configuration,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        let command = Arguments::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            let call = "embrasure-flow ".to_owned();
            assert!(
                help.contains("Example:") && help.contains(&call),
                "{} has no example",
                sub.get_name()
            );
            assert!(
                help.contains(sub.get_name()),
                "{}'s example is of another command",
                sub.get_name()
            );
        }
    }
}
