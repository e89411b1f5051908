//! The format of a copy: a tar archive of plain files that any `tar` reads. It is the ustar format
//! of POSIX.1-1988, a header block before each file, too simple to need a crate.

/// Headers and files start at multiples of this size.
pub(in super::super) const BLOCK_BYTES: u64 = 512;

/// Two empty blocks end an archive.
pub(in super::super) const END_BLOCKS: [u8; 1024] = [0; 1024];

/// The longest file: eleven octal digits.
const MAX_FILE_BYTES: u64 = 0o777_7777_7777;

/// The header of a file of this size; `seconds` is its modification time since 1970.
///
/// # Errors
/// When the name or the file is too long for the format.
pub(in super::super) fn header(name: &str, bytes: u64, seconds: u64) -> Result<Vec<u8>, String> {
    if bytes > MAX_FILE_BYTES || name.len() > 100 {
        return Err(format!("{name} is too long for an archive: {bytes} bytes"));
    }
    let mut block = vec![0; 512];
    let mut put = |at: usize, text: &str| {
        for (target, byte) in block.iter_mut().skip(at).zip(text.bytes()) {
            *target = byte;
        }
    };
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{bytes:011o}"));
    put(136, &format!("{:011o}", seconds.min(MAX_FILE_BYTES)));
    // The checksum field counts as spaces in the sum.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    for (target, byte) in block.iter_mut().skip(148).zip(sum.bytes()) {
        *target = byte;
    }
    Ok(block)
}

/// The number of zero bytes after a file of this size.
pub(in super::super) const fn padding(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES) - bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_all_fields() {
        let block = header("audit.db", 4_096, 1_795_269_751).unwrap();
        let field = |at: usize, length: usize| {
            let text = &block[at..at + length];
            String::from_utf8_lossy(text)
                .trim_end_matches('\0')
                .to_owned()
        };
        assert_eq!(block.len(), 512);
        assert_eq!(field(0, 100), "audit.db");
        assert_eq!(field(124, 12), "00000010000");
        assert_eq!(field(136, 12), "15300322167");
        assert_eq!(field(257, 8), "ustar\u{0}00");
        let others = block
            .iter()
            .enumerate()
            .filter(|(at, _)| !(148..156).contains(at));
        let sum: u32 = others.map(|(_, byte)| u32::from(*byte)).sum();
        assert_eq!(field(148, 8), format!("{:06o}\u{0} ", sum + 8 * 32));
        assert_eq!(padding(0), 0);
        assert_eq!(padding(1), 511);
        assert_eq!(padding(512), 0);
        assert!(header("audit.db", 1 << 33, 0).is_err());
    }
}
