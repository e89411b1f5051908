//! Arguments of `audit export`, `audit backup` and `audit prune`.

use super::audit::{Period, RecordFilter};
use super::{StatusFormat, text_parser};
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
    #[arg(long, value_name = "TIME", value_parser = text_parser())]
    pub before: String,
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
