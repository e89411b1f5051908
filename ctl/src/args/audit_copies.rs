//! What `audit export`, `audit backup` and `audit prune` take.

use super::audit::{Period, Which};
use super::{StatusFormat, text};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `audit export`
#[derive(Debug, Args)]
pub struct Export {
    /// The file; - is standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The form [default: by the file's ending]
    #[arg(long, value_name = "FORMAT", overrides_with = "format")]
    pub format: Option<ExportFormat>,
    /// Replace the file where there is one
    #[arg(long, overrides_with = "force")]
    pub force: bool,
    /// Which records are meant.
    #[command(flatten)]
    pub which: Which,
    /// Of what time.
    #[command(flatten)]
    pub period: Period,
}

/// The forms that records are exported in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Rows, with the names of the columns first
    Csv,
    /// One document a line
    Jsonl,
    /// Columns, for pandas, DuckDB and their like
    Parquet,
}

impl ExportFormat {
    /// The form that a file's name asks for.
    #[must_use]
    pub fn of(file: &std::path::Path) -> Option<Self> {
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
    /// Replace the file where there is one
    #[arg(long, overrides_with = "force")]
    pub force: bool,
}

/// `audit prune`
#[derive(Debug, Args)]
pub struct Prune {
    /// Older than this: 90d (that long ago), 2026-11-20, "2026-11-20 14:00", RFC 3339
    #[arg(long, value_name = "TIME", value_parser = text())]
    pub before: String,
    /// Only say what would be deleted
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}
