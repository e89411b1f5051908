//! Answers that are compared whole, in `testdata`. `GPUKILL_BLESS=1` writes them;
//! whoever does so reads them.

#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read, and written when that is asked for"
)]
pub(crate) fn compare(name: &str, told: &str) {
    let path = format!("{}/testdata/{name}.golden", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GPUKILL_BLESS").is_some() {
        std::fs::write(&path, told).expect("it can be written");
    }
    let written = std::fs::read_to_string(&path).expect("GPUKILL_BLESS=1 writes it");
    assert_eq!(told, written, "{name}");
}
