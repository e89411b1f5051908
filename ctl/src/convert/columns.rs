//! Records as columns, for programs that read many. The columns
//! are those of a row, and what is not known is null. Written without Arrow: a record has no
//! lists, and the columns are few.

use crate::output::csv::{columns_of_records, text};
use gpukill_proto::document::AuditDocument;
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

/// So many records are kept before they are written as one group: some MiB.
const GROUP: usize = 16_384;

/// Records on their way into columns.
pub(crate) struct Columns {
    writer: SerializedFileWriter<File>,
    columns: Vec<(&'static str, Cells)>,
    rows: usize,
}

/// The values of one column, without those that are null; and which are.
struct Cells {
    values: Values,
    /// 1 for a value, 0 for none: Parquet's definition levels.
    is_known: Vec<i16>,
}

enum Values {
    /// Milliseconds since 1970, in UTC.
    Moments(Vec<i64>),
    Whole(Vec<i64>),
    Fractions(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl Values {
    /// What a column holds.
    fn of(column: &str) -> Self {
        match column {
            "timestamp" => Self::Moments(Vec::new()),
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

    fn as_type(&self, column: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            // Without a word on UTC it is the reader's own time to some.
            Self::Moments(_) => {
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

impl Columns {
    /// Begins a file.
    pub(crate) fn begin(file: File) -> io::Result<Self> {
        let columns: Vec<_> = columns_of_records()
            .into_iter()
            .map(|name| (name, Cells::of(name)))
            .collect();
        let types = columns
            .iter()
            .map(|(name, cells)| cells.values.as_type(name).map(Arc::new));
        let types = types.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("record").with_fields(types);
        let schema = Arc::new(schema.build().map_err(failed)?);
        let by = concat!("gpukillctl ", env!("CARGO_PKG_VERSION")).to_owned();
        // Ids and times are all different: the distance to the one before is short.
        let mut properties = WriterProperties::builder().set_created_by(by);
        for column in ["id", "timestamp"] {
            properties = properties
                .set_column_dictionary_enabled(column.into(), false)
                .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(failed)?;
        Ok(Self {
            writer,
            columns,
            rows: 0,
        })
    }

    /// Takes a record, and writes a group when there are enough.
    pub(crate) fn add(&mut self, at: Timestamp, record: &AuditDocument) -> io::Result<()> {
        let record = serde_json::to_value(record)?;
        for (name, cells) in &mut self.columns {
            let value = record.get(*name).unwrap_or(&Value::Null);
            cells.add(name, value, at)?;
        }
        self.rows += 1;
        if self.rows < GROUP {
            return Ok(());
        }
        self.write_group()
    }

    /// Writes what is left, and the end of the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.writer.close().map_err(failed)?;
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        self.rows = 0;
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for (_, cells) in &mut self.columns {
            if let Some(column) = group.next_column().map_err(failed)? {
                cells.write(column).map_err(failed)?;
            }
        }
        group.close().map_err(failed)?;
        Ok(())
    }
}

impl Cells {
    fn of(column: &str) -> Self {
        Self {
            values: Values::of(column),
            is_known: Vec::new(),
        }
    }

    fn add(&mut self, name: &str, value: &Value, at: Timestamp) -> io::Result<()> {
        // Why others are not known is one text, and none where all are.
        let is_none = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        self.is_known.push(i16::from(!is_none));
        if is_none {
            return Ok(());
        }
        let taken = match &mut self.values {
            Values::Moments(all) => {
                all.push(at.0);
                Some(())
            }
            Values::Whole(all) => value.as_i64().map(|whole| all.push(whole)),
            Values::Fractions(all) => value.as_f64().map(|fraction| all.push(fraction)),
            Values::Texts(all) => {
                let is_text = value.is_string() || value.is_object();
                is_text.then(|| all.push(text(value).into_bytes().into()))
            }
        };
        let wrong = || io::Error::other(format!("{name} is of another kind"));
        taken.ok_or_else(wrong)
    }

    /// Writes all of them, and begins anew.
    fn write(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(self.is_known.as_slice());
        match &mut self.values {
            Values::Moments(all) | Values::Whole(all) => {
                column.typed::<Int64Type>().write_batch(all, levels, None)?;
                all.clear();
            }
            Values::Fractions(all) => {
                column
                    .typed::<DoubleType>()
                    .write_batch(all, levels, None)?;
                all.clear();
            }
            Values::Texts(all) => {
                let column = column.typed::<ByteArrayType>();
                column.write_batch(all, levels, None)?;
                all.clear();
            }
        }
        self.is_known.clear();
        column.close()
    }
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}
