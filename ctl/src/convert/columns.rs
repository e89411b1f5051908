//! Writes records as Parquet columns, for programs that read many records. The columns are
//! those of a CSV row, and an unknown value is null. Arrow is not used, because a record has no
//! lists and the columns are few.

use crate::output::csv::{record_columns, value_text};
use gpukill_proto::json::AuditDocument;
use gpukill_proto::units::Timestamp;
use parquet::basic::{Encoding, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Number of records that are collected and written as one row group: some MiB.
const ROW_GROUP_RECORDS: usize = 16_384;

/// A Parquet file that is being written.
pub(crate) struct ParquetColumns {
    writer: SerializedFileWriter<File>,
    columns: Vec<(&'static str, ColumnBuffer)>,
    rows: usize,
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
    /// The type of a column.
    fn for_column(column: &str) -> Self {
        match column {
            "timestamp" => Self::Timestamps(Vec::new()),
            "power_w" | "covers_secs" | "held_secs" => Self::Fractions(Vec::new()),
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
            | "connections" => Self::Whole(Vec::new()),
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
    /// Starts a file.
    pub(crate) fn create(file: File) -> io::Result<Self> {
        let columns: Vec<_> = record_columns()
            .into_iter()
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
        let mut properties = WriterProperties::builder().set_created_by(by);
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
        })
    }

    /// Adds a record, and writes a row group when there are enough.
    pub(crate) fn add(&mut self, at: Timestamp, record: &AuditDocument) -> io::Result<()> {
        let record = serde_json::to_value(record)?;
        for (name, cells) in &mut self.columns {
            let value = record.get(*name).unwrap_or(&Value::Null);
            cells.add(name, value, at)?;
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

    fn add(&mut self, name: &str, value: &Value, at: Timestamp) -> io::Result<()> {
        // The reasons for unknown values are one text; it is null when every value is known.
        let is_none = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        self.is_known.push(i16::from(!is_none));
        if is_none {
            return Ok(());
        }
        let taken = match &mut self.values {
            ColumnValues::Timestamps(all) => {
                all.push(at.0);
                Some(())
            }
            ColumnValues::Whole(all) => value.as_i64().map(|whole| all.push(whole)),
            ColumnValues::Fractions(all) => value.as_f64().map(|fraction| all.push(fraction)),
            ColumnValues::Texts(all) => {
                let is_text = value.is_string() || value.is_object();
                is_text.then(|| all.push(value_text(value).into_bytes().into()))
            }
        };
        let wrong = || io::Error::other(format!("{name} is of another kind"));
        taken.ok_or_else(wrong)
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
