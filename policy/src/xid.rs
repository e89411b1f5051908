//! NVIDIA's error numbers ("XID"), as its driver documents them.

/// Describes an XID; `None` for an unlisted one.
#[must_use]
pub const fn meaning(code: u64) -> Option<&'static str> {
    Some(match code {
        13 => "a program made an illegal access or instruction",
        31 => "a program touched memory that is not its own",
        43 => "a program's work was stopped after its fault",
        45 => "a program ended with work on the GPU",
        48 => "a memory error that could not be corrected",
        62 => "an internal error of the GPU's controller",
        63 => "a broken memory row or page was recorded for replacement",
        64 => "a broken memory row or page could not be recorded",
        74 => "an NVLink error",
        79 => "the GPU has fallen off the bus",
        92 => "many corrected memory errors",
        94 => "a memory error was contained: the program that had it ended",
        95 => "a memory error was not contained: the GPU needs a reset",
        119 | 120 => "the GPU's system processor does not answer",
        _ => return None,
    })
}

/// Whether an XID says that a program is at fault, and not the GPU.
#[must_use]
pub const fn is_program_fault(code: u64) -> bool {
    matches!(code, 13 | 31 | 43 | 45)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_faults_are_no_gpu_faults() {
        assert!(is_program_fault(31) && !is_program_fault(79));
        assert_eq!(meaning(79), Some("the GPU has fallen off the bus"));
        assert_eq!(meaning(9_999), None);
    }
}
