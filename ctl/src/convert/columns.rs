//! Writes records as Parquet columns, for programs that read many records. The columns are
//! those of a CSV row, and an unknown value is null. Arrow is not used, because the columns are few
//! and the lists of a run, short ones, are texts as in CSV.
//!
//! A file contains a hash of its rows, so that [`count_checked_rows`] can tell whether the rows
//! that it decodes are those that were written.

use crate::output::csv::value_text;
use chrono::DateTime;
use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::Field;
use parquet::schema::types::Type;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Number of records that are collected and written as one row group: some MiB.
const ROW_GROUP_RECORDS: usize = 16_384;

/// The key of the hash in the metadata of a file.
const ROWS_HASH_KEY: &str = "gpukill.rows_sha256";

/// A Parquet file that is being written.
pub(crate) struct ParquetColumns {
    writer: SerializedFileWriter<File>,
    columns: Vec<(&'static str, ColumnBuffer)>,
    rows: usize,
    hash: RowHash,
}

/// A hash over the cells of all rows, row by row.
#[derive(Default)]
struct RowHash(Sha256);

/// The value of a cell in a row, as a column holds it.
enum Cell<'a> {
    Unknown,
    Whole(i64),
    Fraction(f64),
    Text(&'a [u8]),
}

impl RowHash {
    fn add(&mut self, cell: &Cell<'_>) {
        match cell {
            Cell::Unknown => self.0.update([0]),
            Cell::Whole(whole) => {
                self.0.update([1]);
                self.0.update(whole.to_le_bytes());
            }
            Cell::Fraction(fraction) => {
                self.0.update([2]);
                self.0.update(fraction.to_bits().to_le_bytes());
            }
            Cell::Text(text) => {
                self.0.update([3]);
                self.0.update((text.len() as u64).to_le_bytes());
                self.0.update(text);
            }
        }
    }

    fn finish(self) -> String {
        format!("{:x}", self.0.finalize())
    }
}

/// The known values of one column, and which rows have one.
struct ColumnBuffer {
    values: ColumnValues,
    /// Parquet's definition levels: 1 for a value, 0 for none.
    is_known: Vec<i16>,
}

enum ColumnValues {
    /// Milliseconds since 1970, in UTC.
    Timestamps(Vec<i64>),
    Whole(Vec<i64>),
    Fractions(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl ColumnValues {
    fn for_column(column: &str) -> Self {
        match column {
            "timestamp" | "finished_at" | "started_at" | "ended_at" => Self::Timestamps(Vec::new()),
            "power_w" | "covers_secs" | "held_secs" | "duration_secs" | "gpu_hours"
            | "busy_hours" | "idle_hours" | "unknown_hours" | "memory_gib_hours" => {
                Self::Fractions(Vec::new())
            }
            "id"
            | "gpu_index"
            | "pid"
            | "uid"
            | "owner_uid"
            | "namespace_owner_uid"
            | "memory_used_mb"
            | "memory_used_bytes"
            | "utilization_pct"
            | "temperature_c"
            | "connections"
            | "times"
            | "processes"
            | "memory_max_mb"
            | "memory_max_bytes"
            | "action_id"
            | "ended_by_uid" => Self::Whole(Vec::new()),
            _ => Self::Texts(Vec::new()),
        }
    }

    fn parquet_type(&self, column: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            // Without the UTC flag some readers take it for local time.
            Self::Timestamps(_) => {
                let moment = LogicalType::timestamp(true, TimeUnit::MILLIS);
                (Physical::INT64, Some(moment))
            }
            Self::Whole(_) => (Physical::INT64, None),
            Self::Fractions(_) => (Physical::DOUBLE, None),
            Self::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(column, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
    }
}

impl ParquetColumns {
    pub(crate) fn create(file: File, names: &[&'static str]) -> io::Result<Self> {
        let columns: Vec<_> = names
            .iter()
            .copied()
            .map(|name| (name, ColumnBuffer::for_column(name)))
            .collect();
        let types = columns
            .iter()
            .map(|(name, cells)| cells.values.parquet_type(name).map(Arc::new));
        let types = types.collect::<Result<Vec<_>, _>>().map_err(to_io_error)?;
        let schema = Type::group_type_builder("record").with_fields(types);
        let schema = Arc::new(schema.build().map_err(to_io_error)?);
        let by = concat!("gpukillctl ", env!("CARGO_PKG_VERSION")).to_owned();
        // Ids and times are all different, but close to the value before.
        let mut properties = WriterProperties::builder()
            .set_created_by(by)
            .set_compression(Compression::ZSTD(ZstdLevel::default()));
        for column in ["id", "timestamp"] {
            properties = properties
                .set_column_dictionary_enabled(column.into(), false)
                .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(to_io_error)?;
        Ok(Self {
            writer,
            columns,
            rows: 0,
            hash: RowHash::default(),
        })
    }

    /// Adds a record, and writes a row group when there are enough.
    pub(crate) fn add(&mut self, record: &Value) -> io::Result<()> {
        for (name, cells) in &mut self.columns {
            let value = record.get(*name).unwrap_or(&Value::Null);
            let cell = cells.add(value);
            let cell = cell.ok_or_else(|| io::Error::other(format!("{name} is of another kind")));
            self.hash.add(&cell?);
        }
        self.rows += 1;
        if self.rows < ROW_GROUP_RECORDS {
            return Ok(());
        }
        self.write_group()
    }

    /// Writes the remaining records and the end of the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        let hash = KeyValue::new(ROWS_HASH_KEY.to_owned(), self.hash.finish());
        self.writer.append_key_value_metadata(hash);
        self.writer.close().map_err(to_io_error)?;
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        self.rows = 0;
        let mut group = self.writer.next_row_group().map_err(to_io_error)?;
        for (_, cells) in &mut self.columns {
            if let Some(column) = group.next_column().map_err(to_io_error)? {
                cells.write(column).map_err(to_io_error)?;
            }
        }
        group.close().map_err(to_io_error)?;
        Ok(())
    }
}

impl ColumnBuffer {
    fn for_column(column: &str) -> Self {
        Self {
            values: ColumnValues::for_column(column),
            is_known: Vec::new(),
        }
    }

    /// Adds a value and returns its cell; `None` if the value is of another kind.
    fn add(&mut self, value: &Value) -> Option<Cell<'_>> {
        // The reasons for unknown values are one text; it is null when every value is known.
        let is_none = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        self.is_known.push(i16::from(!is_none));
        if is_none {
            return Some(Cell::Unknown);
        }
        match &mut self.values {
            ColumnValues::Timestamps(all) => {
                all.push(parse_timestamp(value.as_str()?)?);
                all.last().copied().map(Cell::Whole)
            }
            ColumnValues::Whole(all) => {
                all.push(value.as_i64()?);
                all.last().copied().map(Cell::Whole)
            }
            ColumnValues::Fractions(all) => {
                all.push(value.as_f64()?);
                all.last().copied().map(Cell::Fraction)
            }
            ColumnValues::Texts(all) => {
                let is_text = value.is_string() || value.is_object() || value.is_array();
                all.push(is_text.then(|| value_text(value).into_bytes().into())?);
                all.last().map(|text| Cell::Text(text.data()))
            }
        }
    }

    /// Writes all cells and clears them.
    fn write(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(self.is_known.as_slice());
        match &mut self.values {
            ColumnValues::Timestamps(all) | ColumnValues::Whole(all) => {
                column.typed::<Int64Type>().write_batch(all, levels, None)?;
                all.clear();
            }
            ColumnValues::Fractions(all) => {
                column
                    .typed::<DoubleType>()
                    .write_batch(all, levels, None)?;
                all.clear();
            }
            ColumnValues::Texts(all) => {
                let column = column.typed::<ByteArrayType>();
                column.write_batch(all, levels, None)?;
                all.clear();
            }
        }
        self.is_known.clear();
        column.close()
    }
}

fn to_io_error(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// Parses a time of a document: RFC 3339, or outside of the calendar a number.
fn parse_timestamp(text: &str) -> Option<i64> {
    let moment = DateTime::parse_from_rfc3339(text);
    let milliseconds = moment.map(|moment| moment.timestamp_millis()).ok();
    milliseconds.or_else(|| text.parse().ok())
}

/// Decodes all rows of a file and returns their number.
///
/// # Errors
/// It cannot be decoded, or its rows are not those that were written.
pub(crate) fn count_checked_rows(file: File) -> io::Result<u64> {
    let reader = SerializedFileReader::new(file).map_err(to_io_error)?;
    let metadata = reader.metadata().file_metadata();
    let pairs = metadata.key_value_metadata().into_iter().flatten();
    let mut written = pairs.filter(|pair| pair.key == ROWS_HASH_KEY);
    let written = written.next().and_then(|pair| pair.value.clone());
    let mut hash = RowHash::default();
    let mut count = 0;
    for row in reader {
        let row = row.map_err(to_io_error)?;
        for (name, field) in row.get_column_iter() {
            let cell = match field {
                Field::Null => Cell::Unknown,
                Field::Long(whole) | Field::TimestampMillis(whole) => Cell::Whole(*whole),
                Field::Double(fraction) => Cell::Fraction(*fraction),
                Field::Str(text) => Cell::Text(text.as_bytes()),
                // Other kinds of values, which this program does not write.
                _ => return Err(io::Error::other(format!("{name} is of another kind"))),
            };
            hash.add(&cell);
        }
        count += 1;
    }
    match written == Some(hash.finish()) {
        true => Ok(count),
        false => Err(io::Error::other(
            "the rows read from the file are not the rows written to it",
        )),
    }
}
