//! Arguments of `audit export`, `audit archive`, `audit backup` and `audit prune`.

use super::audit::{Period, RecordFilter};
use super::{StatusFormat, text_parser};
use clap::builder::PathBufValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `audit export`
#[derive(Debug, Args)]
pub struct Export {
    /// The file; - is standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The form [default: from the file's extension]
    #[arg(long, value_name = "FORMAT", overrides_with = "format")]
    pub format: Option<ExportFormat>,
    /// Replace the file if it exists
    #[arg(long, overrides_with = "force")]
    pub force: bool,
    /// Which records are exported.
    #[command(flatten)]
    pub which: RecordFilter,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
}

/// The formats of exported records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Rows, after a row with the column names
    Csv,
    /// One document a line
    Jsonl,
    /// Columns, for pandas, DuckDB and similar tools
    Parquet,
}

impl ExportFormat {
    /// The format of the file's extension.
    #[must_use]
    pub fn from_path(file: &std::path::Path) -> Option<Self> {
        let ending = file.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// `audit archive`
#[derive(Debug, Args)]
pub struct Archive {
    /// The directory of the archive, which must exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Archive command lines too
    #[arg(long, overrides_with = "with_commands")]
    pub with_commands: bool,
    /// Compare the hash of each archived file, not only its size
    #[arg(long, overrides_with = "verify")]
    pub verify: bool,
}

/// `audit backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// The file, a tar archive
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace the file if it exists
    #[arg(long, overrides_with = "force")]
    pub force: bool,
}

/// `audit prune`
#[derive(Debug, Args)]
pub struct Prune {
    /// Delete what is older than this: 90d (that long ago), 2026-11-20, "2026-11-20 14:00", RFC
    /// 3339
    #[arg(long, value_name = "TIME", value_parser = text_parser(), required_unless_present = "archived")]
    pub before: Option<String>,
    /// Delete the days that this archive has, from the oldest on, after a check of their files
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new(), conflicts_with = "before")]
    pub archived: Option<PathBuf>,
    /// Only show what would be deleted
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}
