//! Compares whole results with golden files in `testdata`. `GPUKILL_BLESS=1` writes the
//! files; review them afterwards.

#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read, and written when that is asked for"
)]
pub(crate) fn compare(name: &str, actual: &str) {
    let path = format!("{}/testdata/{name}.golden", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GPUKILL_BLESS").is_some() {
        std::fs::write(&path, actual).expect("it can be written");
    }
    let written = std::fs::read_to_string(&path).expect("GPUKILL_BLESS=1 writes it");
    assert_eq!(actual, written, "{name}");
}
