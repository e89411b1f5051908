//! A library as an older driver has it: without some of its functions.
//!
//! Not a module of the stand-in, which cannot take an exported function back. A test includes this
//! file by its path and loads a changed copy of the built library.
//!
//! The rule: in the ELF file a function is named in the string table `.dynstr`, between the NUL that
//! ends the name before and its own. With the first letter changed there, the hash table still leads
//! to the place, but the name there is another: `dlsym` finds no such symbol. The same bytes in
//! `.strtab`, which only debuggers read, change along. Nothing moves, and the functions still there
//! are not touched.

/// The library without these functions.
///
/// # Panics
/// When it does not have one of them.
#[must_use]
pub(crate) fn without(library: &[u8], functions: &[&str]) -> Vec<u8> {
    let mut changed = library.to_vec();
    for function in functions {
        let name: Vec<u8> = [b"\0", function.as_bytes(), b"\0"].concat();
        let places: Vec<usize> = changed
            .windows(name.len())
            .enumerate()
            .filter_map(|(place, bytes)| (bytes == name).then_some(place))
            .collect();
        assert!(!places.is_empty(), "the library has no {function}");
        for place in places {
            // No function of NVML begins with it.
            changed[place + 1] = b'-';
        }
    }
    changed
}
